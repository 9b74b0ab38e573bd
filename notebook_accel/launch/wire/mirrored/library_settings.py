"""Settings that libraries keep in one place each, and that ranks take on from the notebook.

A library that only the rank has not imported gets its settings when it is imported there. `docs/launching.md` lists
them for users.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from notebook_accel.launch.wire.mirrored import on_import

_PLAIN = (str, int, float, bool, type(None))
"""The types of values that mean the same in every process."""


@dataclass(frozen=True)
class _Setting:
    """A setting, or several that are kept together."""

    module: str
    """The module that keeps it. Until it is imported, the setting has its default."""
    read: Callable[[Any], Any]
    """Returns plain data, given the module; empty data, or `None`, stands for the default."""
    write: Callable[[Any, Any], None]


def capture() -> dict[str, Any]:
    """The settings of this process, by the names in `SETTINGS`."""
    return {name: row.read(sys.modules[row.module]) for name, row in SETTINGS.items() if row.module in sys.modules}


def apply(settings: Mapping[str, Any]) -> None:
    """Takes on the settings of another process."""
    for name, value in settings.items():
        row = SETTINGS[name]
        if row.module in sys.modules or value:
            on_import.when_imported({row.module: partial(_write, row, value)})


def _write(row: _Setting, value: Any, module: Any) -> None:
    if row.read(module) != value:
        row.write(module, value)


_filters = threading.Lock()


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Suppresses torch 2.9's warnings about old names of a setting, which are meant for the user's own code."""
    with _filters, warnings.catch_warnings():  # ranks may be threads, and the filters are the process's
        warnings.simplefilter("ignore")
        yield


# torch


def _read_dtype(torch: Any) -> str:
    return str(torch.get_default_dtype()).removeprefix("torch.")


def _write_dtype(torch: Any, name: str) -> None:
    torch.set_default_dtype(getattr(torch, name))


def _read_matmul(torch: Any) -> str:
    with _without_warnings():
        return str(torch.get_float32_matmul_precision())


def _write_matmul(torch: Any, precision: str) -> None:
    with _without_warnings():
        torch.set_float32_matmul_precision(precision)


def _read_deterministic(torch: Any) -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _write_deterministic(torch: Any, value: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(value[0], warn_only=value[1])  # torch imports its whole compiler for this


_FLAGS = (
    *("cudnn.enabled", "cudnn.benchmark", "cudnn.benchmark_limit", "cudnn.deterministic", "cudnn.allow_tf32"),
    *(f"cuda.matmul.allow_{kind}_reduced_precision_reduction" for kind in ("fp16", "bf16")),
    "mkldnn.enabled",
)
"""Attributes of `torch.backends`. What `cuda.matmul.allow_tf32` sets is torch's precision of products."""


def _read_flags(torch: Any) -> dict[str, Any]:
    found = {}
    with _without_warnings():
        for flag in _FLAGS:
            *path, name = flag.split(".")
            try:
                value = getattr(_follow(torch.backends, path), name)
            except (AttributeError, RuntimeError):  # another version of torch, or another kind of GPU
                continue
            if isinstance(value, _PLAIN):
                found[flag] = value
    return found


def _write_flags(torch: Any, flags: Mapping[str, Any]) -> None:
    now = _read_flags(torch)
    with _without_warnings():
        for flag, value in flags.items():
            *path, name = flag.split(".")
            if flag in now and now[flag] != value:
                setattr(_follow(torch.backends, path), name, value)


def _follow(owner: Any, path: list[str]) -> Any:
    for name in path:
        owner = getattr(owner, name)
    return owner


_PRINT_OPTIONS = ("precision", "threshold", "edgeitems", "linewidth", "sci_mode")


def _read_torch_print_options(tensor_text: Any) -> dict[str, Any]:
    return {name: getattr(tensor_text.PRINT_OPTS, name) for name in _PRINT_OPTIONS}


def _write_torch_print_options(tensor_text: Any, options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        setattr(tensor_text.PRINT_OPTS, name, value)


def _read_anomaly(torch: Any) -> tuple[bool, bool]:
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


def _write_anomaly(torch: Any, value: tuple[bool, bool]) -> None:
    torch.set_anomaly_enabled(*value)


# NumPy, pandas, Matplotlib


def _read_numpy_print_options(numpy: Any) -> dict[str, Any]:
    return {name: value for name, value in numpy.get_printoptions().items() if isinstance(value, _PLAIN)}


def _write_numpy_print_options(numpy: Any, options: Mapping[str, Any]) -> None:
    known = numpy.get_printoptions()
    numpy.set_printoptions(**{name: value for name, value in options.items() if name in known})


def _read_pandas(pandas: Any) -> dict[str, Any]:
    """The options that differ from their defaults."""
    config = pandas._config.config
    found: dict[str, Any] = {}
    for key, option in config._registered_options.items():
        value: Any = config._global_config
        for part in key.split("."):
            value = value[part]
        if value is not option.defval and isinstance(value, _PLAIN) and value != option.defval:
            found[key] = value
    return found


def _write_pandas(pandas: Any, options: Mapping[str, Any]) -> None:
    known = pandas._config.config._registered_options
    for key in _read_pandas(pandas).keys() - options.keys():
        pandas.set_option(key, known[key].defval)
    for key, value in options.items():
        if key in known:
            pandas.set_option(key, value)


_OF_SCREENS = ("backend", "interactive", "toolbar", "webagg", "tk.", "savefig.directory")


def _read_matplotlib(matplotlib: Any) -> dict[str, Any]:
    """The parameters that differ from their defaults, but those that depend on where a figure is shown."""
    found: dict[str, Any] = {}
    for key, value in dict.items(matplotlib.rcParams):
        if value != dict.get(matplotlib.rcParamsDefault, key) and not key.startswith(_OF_SCREENS):
            if key == "axes.prop_cycle":
                found[key] = value.by_key()
            elif isinstance(value, _PLAIN) or (isinstance(value, list) and all(isinstance(x, _PLAIN) for x in value)):
                found[key] = value
    return found


def _write_matplotlib(matplotlib: Any, parameters: Mapping[str, Any]) -> None:
    for key, value in parameters.items():
        if key == "axes.prop_cycle":
            matplotlib.rcParams[key] = matplotlib.cycler(**value)
        elif key in matplotlib.rcParams:
            matplotlib.rcParams[key] = value


# The standard library

_Filter = tuple[str, "tuple[str, int] | None", str, "tuple[str, int] | None", int]


def _read_filters(module: Any) -> list[_Filter]:
    """The filters of warnings, the one that counts most first, as plain data."""
    return [
        (action, _pattern(message), f"{category.__module__}:{category.__qualname__}", _pattern(where), line)
        for action, message, category, where, line in module.filters
    ]


def _pattern(found: Any) -> tuple[str, int] | None:
    """A pattern as plain data. Unpickling one compiles it, also where it is there already."""
    if found is None or isinstance(found, str):
        return None if found is None else (found, -1)
    return found.pattern, found.flags


def _write_filters(module: Any, filters: list[_Filter]) -> None:
    """Puts the filters first. Those whose category is not imported here can't apply, and are left out."""
    own = dict(zip(_read_filters(module), module.filters, strict=True))
    made = []
    for each in filters:
        action, message, category, where, line = each
        if each in own:
            made.append(own.pop(each))
        elif (kind := _category(category)) is not None:
            made.append((action, _compiled(message), kind, _compiled(where), line))
    module.filters[:] = [*made, *own.values()]
    module._filters_mutated() if hasattr(module, "_filters_mutated") else module._filters_mutated_lock_held()


def _category(name: str) -> Any:
    module, _, qualname = name.partition(":")
    try:
        return _follow(sys.modules[module], qualname.split("."))
    except (KeyError, AttributeError):
        return None


def _compiled(pattern: tuple[str, int] | None) -> Any:
    if pattern is None or pattern[1] == -1:
        return None if pattern is None else pattern[0]
    return re.compile(*pattern)


_STREAMS = ("stdout", "stderr")


def _read_logging(module: Any) -> dict[str, Any]:
    """What has been disabled, the levels of loggers that have one, and the handlers that `basicConfig` makes."""
    loggers = module.root.manager.loggerDict
    named = {name: each.level for name, each in list(loggers.items()) if getattr(each, "level", 0)}
    handlers = [found for each in module.root.handlers if (found := _handler(each)) is not None]
    return {"disabled": module.root.manager.disable, "root": module.root.level, "named": named, "handlers": handlers}


def _handler(handler: logging.Handler) -> dict[str, Any] | None:
    """A handler that writes to standard output or error, or to the end of a file, as plain data; `None` for others."""
    formatter = handler.formatter or logging.Formatter()
    styles = {kind: name for name, (kind, _) in logging._STYLES.items()}
    style = styles.get(type(formatter._style))  # type: ignore[call-overload]  # typeshed takes its keys for instances
    if handler.filters or type(formatter) is not logging.Formatter or style is None:
        return None
    found = {"level": handler.level, "format": (formatter._fmt, formatter.datefmt, style)}
    if type(handler) is logging.FileHandler:
        return {**found, "file": handler.baseFilename, "encoding": handler.encoding}
    if type(handler) is not logging.StreamHandler:
        return None
    stream = next((name for name in _STREAMS if handler.stream is getattr(sys, name)), None)
    return None if stream is None else {**found, "stream": stream}


def _write_logging(module: Any, settings: Mapping[str, Any]) -> None:
    module.disable(settings["disabled"])
    module.root.setLevel(settings["root"])
    for name, level in settings["named"].items():
        if not name.startswith(_OF_KERNELS):
            module.getLogger(name).setLevel(level)
    if not module.root.handlers:
        for found in settings["handlers"]:
            if "stream" in found:
                handler = module.StreamHandler(getattr(sys, found["stream"]))
            elif os.path.isdir(os.path.dirname(found["file"])):  # which another node may not have
                handler = module.FileHandler(found["file"], encoding=found["encoding"], delay=True)
            else:
                continue
            handler.setLevel(found["level"])
            handler.setFormatter(module.Formatter(*found["format"]))
            module.root.addHandler(handler)


_OF_KERNELS = (
    "ipykernel",
    "traitlets",
    "tornado",
    "asyncio",
    "concurrent",
    "jupyter",
    "comm",
    "Comm",
    "notebook_accel",
)
"""The beginnings of the names of loggers that a notebook's kernel uses itself."""


def _read_decimal(module: Any) -> dict[str, Any] | None:
    context = module.getcontext()
    found = {name: getattr(context, name) for name in ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")}
    return {**found, "traps": sorted(each.__name__ for each, is_set in context.traps.items() if is_set)}


def _write_decimal(module: Any, found: dict[str, Any]) -> None:
    module.setcontext(module.Context(**{**found, "traps": [getattr(module, name) for name in found["traps"]]}))


SETTINGS: dict[str, _Setting] = {
    "torch's default dtype": _Setting("torch", _read_dtype, _write_dtype),
    "torch's float32 matmul precision": _Setting("torch", _read_matmul, _write_matmul),
    "torch's deterministic mode": _Setting("torch", _read_deterministic, _write_deterministic),
    "torch's anomaly detection": _Setting("torch", _read_anomaly, _write_anomaly),
    "flags of torch.backends": _Setting("torch", _read_flags, _write_flags),
    "torch's print options": _Setting("torch._tensor_str", _read_torch_print_options, _write_torch_print_options),
    "NumPy's print options": _Setting("numpy", _read_numpy_print_options, _write_numpy_print_options),
    "NumPy's handling of errors": _Setting(
        "numpy", lambda numpy: numpy.geterr(), lambda numpy, value: numpy.seterr(**value)
    ),
    "options of pandas": _Setting("pandas", _read_pandas, _write_pandas),
    "Matplotlib's rcParams": _Setting("matplotlib", _read_matplotlib, _write_matplotlib),
    "warning filters": _Setting("warnings", _read_filters, _write_filters),
    "logging levels": _Setting("logging", _read_logging, _write_logging),
    "the decimal context": _Setting("decimal", _read_decimal, _write_decimal),
}
"""By what the documentation calls them."""
