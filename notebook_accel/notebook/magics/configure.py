"""`%accelerate` with options: changes the settings of this notebook's launches; without, shows them."""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from notebook_accel import hardware
from notebook_accel.config import environment_variables, file, kinds, resolve
from notebook_accel.config.layers import Layer, merge
from notebook_accel.config.row import Setting
from notebook_accel.config.settings import SETTINGS
from notebook_accel.config.translation import from_config
from notebook_accel.errors import ConfigurationError, did_you_mean
from notebook_accel.launch.plan import plan
from notebook_accel.launch.plan.plan import Plan
from notebook_accel.launch.plan.preview import preview
from notebook_accel.launch.show import front_end
from notebook_accel.notebook.ipython import magic_options
from notebook_accel.notebook.ipython.magic_options import Option
from notebook_accel.notebook.magics import status

MAGIC = "%accelerate"


def _option(setting: Setting) -> Option:
    return Option(
        flags=setting.magic,
        summary=setting.help,
        value=setting.kind.placeholder,
        choices=setting.kind.choices,
        repeats=setting.kind is kinds.environment,
    )


_SETTING = {_option(each).name: each for each in SETTINGS.values() if each.magic}
OPTIONS = (
    *(_option(each) for each in _SETTING.values()),
    Option(flags=("--save",), summary="Writes the notebook's settings to the configuration file."),
    Option(flags=("--reset",), summary="Discards the notebook's earlier settings."),
)


def run(words: Sequence[str]) -> None:
    """Applies the options; shows the status if there are none.

    Raises:
        ConfigurationError: One of them cannot work; nothing has changed.
        HardwareError: A requested device does not exist; nothing has changed.
    """
    given, rest = magic_options.parse(MAGIC, OPTIONS, words)
    if rest:
        raise ConfigurationError(f"{MAGIC}: {rest[0]!r} does not belong to an option{did_you_mean(rest[0], _SETTING)}")
    if not given:
        show_status(None, [])
        return
    before = resolve.magic_layer()
    layer = (Layer("magic") if "reset" in given else before) + _layer(given)
    planned = _plan(layer, saving="save" in given)
    if "save" in given:
        _save(layer)
    resolve.set_magic_layer(layer)
    print(preview(planned))  # noqa: T201  # the magic's answer
    changed = {*_layer(given).values, *(before.values.keys() - layer.values.keys())}
    _notify_session(changed)


def _notify_session(changed: Collection[str]) -> None:
    """Shows which changed settings don't apply to the persistent ranks until they are restarted."""
    from notebook_accel.notebook.cells import session

    active = session.existing()
    if active is not None and (notice := active.settings_changed(changed)):
        front_end.current.notice(notice)


def show_status(shell: Any, words: Sequence[str]) -> None:
    """Shows the devices, the settings, and a preview of a launch."""
    del shell
    if words:
        raise ConfigurationError(f"{MAGIC} status takes no arguments, but got {words[0]!r}")
    from IPython.display import display

    display(status.collect())  # type: ignore[no-untyped-call]


def _layer(given: Mapping[str, Sequence[str]]) -> Layer:
    values: dict[str, Any] = {}
    places: dict[str, str] = {}
    for name, texts in given.items():
        setting = _SETTING.get(name)
        if setting is None:  # --save and --reset
            continue
        flag = setting.magic[-1]
        parsed = [setting.kind.parse(flag, text) for text in texts]
        values[setting.field] = dict(ChainMap(*parsed[::-1])) if setting.kind is kinds.environment else parsed[0]
        places[setting.field] = f"{MAGIC} {flag}"
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
        raise ConfigurationError(f"this notebook has no settings to save: set some first, as in {MAGIC} -n 2 --save")
    path = file.location(os.environ)
    found = file.read(path)
    config = merge([Layer("file") if found is None else file.from_file(os.environ, path), layer])
    file.write(path, {key: each.value for key, each in from_config(config).items()})
    print(f"saved in {path}")  # noqa: T201  # the magic's answer
