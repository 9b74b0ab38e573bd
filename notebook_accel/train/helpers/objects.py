"""Helpers for dicts, attributes, names, and sizes; and for what the system has: a port, and a kernel."""

from __future__ import annotations

import functools
import platform
import re
import socket
from typing import Any

import torch

from notebook_accel.train.helpers.module_tensors import id_tensor_storage
from notebook_accel.train.ranks.logging import get_logger

_TORCHRUN_PORT = 29500
_OLDEST_KERNEL = (5, 5)
_log = get_logger(__name__)


def recursive_getattr(obj: Any, attr: str) -> Any:
    """An attribute of an attribute: `recursive_getattr(model, "layers.weight")`."""
    return functools.reduce(getattr, attr.split("."), obj)


def merge_dicts(source: dict[Any, Any], destination: dict[Any, Any]) -> dict[Any, Any]:
    """Merges a dict into another, dicts in it too; returns the other."""
    for key, value in source.items():
        if isinstance(value, dict):
            merge_dicts(value, destination.setdefault(key, {}))
        else:
            destination[key] = value
    return destination


def get_pretty_name(obj: Any) -> str:
    """The name of a function or class, or of an object's class."""
    named = obj if hasattr(obj, "__qualname__") or hasattr(obj, "__name__") else type(obj)
    return str(getattr(named, "__qualname__", None) or named.__name__)


def convert_bytes(size: float) -> str:
    """A number of bytes as text, in the largest unit: `1.5 GB`, where a GB has 2³⁰ bytes."""
    for unit in ("bytes", "KB", "MB", "GB", "TB"):
        if size < 1024:
            return f"{round(size, 2)} {unit}"
        size /= 1024
    return f"{round(size, 2)} PB"


def is_port_in_use(port: int | None = None) -> bool:
    """Whether something listens on a port of this machine; by default 29500, which torchrun uses."""
    with socket.socket() as probe:
        return probe.connect_ex(("localhost", _TORCHRUN_PORT if port is None else port)) == 0


def check_os_kernel() -> None:
    """Warns, on the main rank, if this machine has a kernel of Linux that is known to make ranks hang."""
    release = platform.release()
    found = re.match(r"(\d+)\.(\d+)", release)
    if platform.system() == "Linux" and found and (int(found[1]), int(found[2])) < _OLDEST_KERNEL:
        oldest = ".".join(map(str, _OLDEST_KERNEL))
        _log.warning("Linux %s is older than %s, so the ranks may hang: update the system.", release, oldest)


def clean_state_dict_for_safetensors(state_dict: dict[str, Any]) -> dict[str, Any]:
    """Makes a state dict that safetensors can write: each tensor once, and in one piece.

    Names that share their memory with an earlier name are removed from the given dict too, with a warning.
    """
    first: dict[Any, str] = {}
    shared: list[str] = []
    for name, value in state_dict.items():
        if isinstance(value, torch.Tensor) and first.setdefault(id_tensor_storage(value), name) != name:
            shared.append(name)
    for name in shared:
        del state_dict[name]
    if shared:
        _log.warning("The state dict leaves out %s, which share memory with others.", ", ".join(shared))
    return {
        name: value.contiguous() if isinstance(value, torch.Tensor) else value for name, value in state_dict.items()
    }
