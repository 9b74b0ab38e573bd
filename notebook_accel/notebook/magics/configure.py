"""`%accelerate` with options: changes the settings of this notebook's launches; without, shows them."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

from notebook_accel import hardware
from notebook_accel.config import environment_variables, file, resolve
from notebook_accel.config.keys import from_config
from notebook_accel.config.layers import Layer, merge
from notebook_accel.config.settings import SETTINGS
from notebook_accel.errors import ConfigurationError
from notebook_accel.launch.plan import plan
from notebook_accel.launch.plan.plan import Plan, preview
from notebook_accel.launch.show import console


def run(given: Mapping[str, Any], *, save: bool, reset: bool) -> None:
    """Applies options.

    Args:
        given: The texts of the options that are settings, by field; `None` or empty for those that are not given.
        save: Whether to write the notebook's settings to the configuration file.
        reset: Whether to discard its earlier settings.

    Raises:
        ConfigurationError: One of them cannot work; nothing has changed.
        HardwareError: A requested device does not exist; nothing has changed.
    """
    before, added = resolve.magic_layer(), _layer(given)
    layer = (Layer("magic") if reset else before) + added
    planned = _plan(layer, saving=save)
    config = planned.config
    if config.num_nodes > 1 and not config.cluster and "master_addr" not in config.sources:
        raise ConfigurationError(
            f"num_nodes={config.num_nodes}{config.cite('num_nodes')} needs the machines: add --cluster; or make the "
            "same call on each machine, with num_nodes=, node_rank= and master_addr=, instead of setting it here"
        )
    if save:
        _save(layer)
    resolve.set_magic_layer(layer)
    print(preview(planned))  # noqa: T201  # the magic's answer
    _notify_session({*added.values, *(before.values.keys() - layer.values.keys())})


def _notify_session(changed: Collection[str]) -> None:
    """Shows which changed settings don't apply to the persistent ranks until they are restarted."""
    from notebook_accel.notebook.cells import session

    active = session.existing()
    if active is not None and (notice := active.settings_changed(changed)):
        console.current.notice(notice)


def _layer(given: Mapping[str, Any]) -> Layer:
    values: dict[str, Any] = {}
    places: dict[str, str] = {}
    for field, value in given.items():
        if value not in (None, ()):
            row = SETTINGS[field]
            flag = row.magic[-1]
            if isinstance(value, tuple):  # a mapping, given entry by entry
                values[field] = {key: text for each in value for key, text in row.kind.parse(flag, each).items()}
            else:
                values[field] = row.kind.parse(flag, value)
            places[field] = f"%accelerate {flag}"
    return Layer("magic", values, places)


def _plan(layer: Layer, *, saving: bool) -> Plan:
    """Plans a launch with these settings, so that one that cannot work is refused now rather than at the launch.

    Args:
        layer: The magic's settings.
        saving: Whether the configuration file is about to be written, so that it may not exist yet.
    """
    is_new = saving and not file.location(os.environ).exists()
    below = [environment_variables.from_environment(os.environ)] if is_new else resolve.base_layers(os.environ)
    config = merge([*below, layer])
    found = hardware.detect({**os.environ, **config.env})
    return plan.make(config, found, plan.engine_for(config, found))


def _save(layer: Layer) -> None:
    if not layer.values:
        raise ConfigurationError("this notebook has no settings to save: set some first, as in %accelerate -n 2 --save")
    path = file.location(os.environ)
    found = file.read(path)
    config = merge([Layer("file") if found is None else file.from_file(os.environ, path), layer])
    file.write(path, {key: each.value for key, each in from_config(config).items()})
    print(f"saved in {path}")  # noqa: T201  # the magic's answer
