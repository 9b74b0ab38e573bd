"""The status that `%accelerate` shows: the devices, the settings with their sources, and a preview of a launch."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from notebook_accel import hardware
from notebook_accel.config import LaunchConfig
from notebook_accel.config.resolve import resolve
from notebook_accel.config.settings import SETTINGS
from notebook_accel.errors import ConfigurationError, HardwareError, LaunchError
from notebook_accel.hardware import Device, DeviceUse, Hardware, tpus
from notebook_accel.insight.pictures import div, element, text, wide_table
from notebook_accel.launch import engines
from notebook_accel.launch.engines import base_server
from notebook_accel.launch.job.text import aligned, size
from notebook_accel.launch.plan import plan
from notebook_accel.launch.plan.plan import Plan, preview
from notebook_accel.launch.show import console
from notebook_accel.notebook import views
from notebook_accel.notebook.ipython.console import Kernel
from notebook_accel.notebook.magics import job_commands

_DEVICES = (("Device", "34%"), ("Memory", "22%"), ("Held by", "auto"))
_SETTINGS = (("Setting", "32%"), ("Value", "26%"), ("From", "auto"))


@dataclass(frozen=True)
class Overview:
    """The status, as rows of text."""

    devices: Sequence[Sequence[str]]
    """The devices, each with its name, its memory, and the processes that hold it."""
    settings: Sequence[Sequence[str]]
    """The settings, each with its name, its value, and the source of the value."""
    live: Sequence[str]
    preview: str

    def _repr_html_(self) -> str:
        parts = [
            wide_table(_DEVICES, _cells(self.devices), wrap=True),
            wide_table(_SETTINGS, _cells(self.settings), wrap=True),
            *(div(text(line)) for line in self.live),
            div(element("b", text(self.preview))),
        ]
        return div("".join(parts), "max-width:64em;line-height:1.4")

    def __repr__(self) -> str:
        tables = (
            [[title for title, _ in _DEVICES], *self.devices],
            [[title for title, _ in _SETTINGS], *self.settings],
        )
        parts = [*map(aligned, tables), [*self.live, self.preview]]
        return "\n\n".join("\n".join(lines) for lines in parts)


def collect() -> Overview:
    """Returns the current status.

    Raises:
        ConfigurationError: A setting cannot work on any hardware.
    """
    config = resolve()
    found = hardware.detect({**os.environ, **config.env})
    planned: Plan | None = None
    try:
        planned = plan.make(config, found, plan.engine_for(config, found))
        words = preview(planned)
    except (ConfigurationError, HardwareError, LaunchError) as error:
        words = _short(f"a launch would be refused: {error}")
    return Overview(_devices(found), _settings(config, planned), _live(), words)


def _live() -> list[str]:
    """Lines for the running jobs, the persistent ranks, and the base server."""
    from notebook_accel.notebook.cells import every_cell, session

    active = session.existing()
    shared = base_server.of_this_process()
    lines = [*job_commands.running(), *([] if shared is None else [base_server.describe(shared)])]
    if active is None:
        return lines
    mode = every_cell.current(active.shell)
    return [*lines, *([] if mode.options is None else [mode.describe()]), *active.describe()]


def _devices(found: Hardware) -> list[list[str]]:
    rows, uses = _tpu(found), hardware.memory_use()
    rows += [_device(f"GPU {index}: {gpu.name}", gpu, uses) for index, gpu in enumerate(found.gpus)]
    if found.hidden_gpus:
        rows.append(["GPUs", "", f"can't be used: {found.hidden_gpus}"])
    for row in hardware.ACCELERATORS:
        if row.device not in ("", "tpu", "cuda") and row.name in found.listings:
            rows += [_device(each.name, each, uses, row.memory) for each in found.listings[row.name].usable]
    return rows


def _device(title: str, device: Device, uses: Mapping[str, DeviceUse], memory: str = "") -> list[str]:
    use = uses.get(device.uuid)
    return [title, memory, ""] if use is None else [title, _share(use.used, device.total), _holders(use.holders)]


def _tpu(found: Hardware) -> list[list[str]]:
    tpu = found.tpu
    if tpu is None:
        return []
    where = f"{tpu} ({tpu.host})" if tpu.host else str(tpu)
    if tpu.unusable:
        return [[where, "", f"can't be used: {tpu.unusable}"]]
    held = {} if tpu.emulated else tpus.holders()
    return [[where, "", "; ".join(f"{_who(pid)}, {', '.join(files)}" for pid, files in held.items())]]


def _share(used: float, total: float) -> str:
    return f"{size(used)} of {size(total)}"


def _holders(holders: Mapping[int, int]) -> str:
    return "; ".join(f"{_who(pid)}{f', {size(held)}' if held else ''}" for pid, held in holders.items())


def _who(pid: int) -> str:
    """Describes a process. Leaves out most of its command, which may contain secrets, because notebooks are shared."""
    try:
        process = psutil.Process(pid)
        program, *arguments = process.cmdline() or [process.name()]
        script = [word for word in arguments[:1] if not word.startswith("-")]
        command = " ".join(map(os.path.basename, [program, *script]))
        ancestors = {parent.pid for parent in process.parents()}
    except psutil.Error:  # a process of another container or user
        return f"process {pid}"
    if pid == os.getpid():
        return f"this notebook (process {pid})"
    own = {os.getpid(), *(root for engine in engines.running.values() for root in engine.roots())}
    return f"{command if ancestors.isdisjoint(own) else 'started by this notebook'} (process {pid})"


def _settings(config: LaunchConfig, planned: Plan | None) -> list[list[str]]:
    rows = []
    for name, row in SETTINGS.items():
        if row.magic or name in config.sources:
            rows.append([name, _value(name, getattr(config, name), planned), _source(config, name)])
    for name, entries in (("fsdp", config.fsdp), ("dynamo", config.dynamo), ("parallelism", config.parallelism)):
        if entries:
            words = ", ".join(f"{key}: {value}" for key, value in entries.items())
            rows.append([name, words, _source(config, name)])
    if isinstance(console.current, Kernel):
        with contextlib.suppress(ConfigurationError):  # which the launch is to raise
            rows.append(["view", *views.described()])
    return rows


def _source(config: LaunchConfig, name: str) -> str:
    return _short(str(config.sources.get(name, "default")))


def _short(words: str) -> str:
    """Shortens a path so that it does not name the owner of the home folder, because notebooks are shared."""
    return words.replace(os.path.expanduser("~") + os.sep, "~/")


def _value(name: str, value: Any, planned: Plan | None) -> str:
    """Formats a value; for a setting that is left open, the value that a launch would choose now."""
    open_to = {"num_processes": planned.size, "device": planned.device} if planned else {}
    if value is None:
        return f"{open_to[name]} (detected)" if name in open_to else "–"
    if isinstance(value, Mapping):
        return ", ".join(value) or "–"  # only the names, since values may be secret and notebooks are shared
    return (", ".join(map(str, value)) if isinstance(value, tuple) else str(value)) or "–"


def _cells(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[text(cell) for cell in row] for row in rows]
