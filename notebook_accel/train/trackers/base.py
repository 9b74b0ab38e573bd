"""The contract of experiment trackers, both this package's and the user's own."""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar, cast

from notebook_accel.events import as_float
from notebook_accel.train.ranks import environment

Method = TypeVar("Method", bound=Callable[..., Any])
_REQUIRED = ("name", "requires_logging_directory", "tracker")
_log = logging.getLogger(__name__)


def is_main_process() -> bool:
    """Whether this process is rank 0. Reads the environment, since trackers are often made before a group exists."""
    return environment.read().rank == 0


def on_main_process(function: Method) -> Method:
    """Makes a tracker's method do nothing on ranks other than 0, if the tracker's `main_process_only` is true."""

    @functools.wraps(function)
    def on_main(self: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(self, "main_process_only", False) and not is_main_process():
            return None
        return function(self, *args, **kwargs)

    return cast(Method, on_main)


class GeneralTracker:
    """Base of every tracker. A subclass defines three attributes, and overrides the methods that its service supports.

    name (str): The key in `get_tracker`, `init_kwargs` and `log_kwargs`.
    requires_logging_directory (bool): Whether the class is called with the project's `logging_dir` if it is chosen by
        its name. A tracker that is passed in `log_with` was made with its own folder.
    tracker (Any): The service's own object, such as a run; `get_tracker(name, unwrap=True)` returns it.

    Raises:
        NotImplementedError: One of the three is missing.
    """

    name: str
    requires_logging_directory: bool
    main_process_only: ClassVar[bool] = True
    """Whether methods under `@on_main_process` do nothing on the other ranks."""

    def __init__(self, _blank: bool = False) -> None:
        if not _blank:
            check(self)

    def start(self) -> None:
        """Opens the run. Called by `init_trackers`."""

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Stores the settings of the run."""

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Logs values by name."""

    def finish(self) -> None:
        """Closes the run. Called by `end_training`."""


class RunTracker(GeneralTracker):
    """Logs to one object of a service, such as a run, which `start` opens and `finish` closes.

    A subclass sets `name`. Unless its service opens runs with `init(project=...)` in a package of this name, it also
    overrides `_open` and `_close`.

    Args:
        run_name: The name of the run or the project.
        kwargs: Arguments of what opens it.
    """

    requires_logging_directory = False
    held: ClassVar[str] = "run"
    """The attribute that has the object. Its name is that of Accelerate's class for the service."""

    def __init__(self, run_name: str | None, **kwargs: Any) -> None:
        super().__init__()
        self.run_name = run_name
        self._kwargs = kwargs
        setattr(self, self.held, None)

    @property
    def tracker(self) -> Any:
        """The service's own object."""
        return getattr(self, self.held)

    @on_main_process
    def start(self) -> None:
        setattr(self, self.held, self._open())

    def _open(self) -> Any:
        return importlib.import_module(self.name).init(project=self.run_name, **self._kwargs)

    @on_main_process
    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.tracker.config.update(values)

    @on_main_process
    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Logs all values that the run's `log` accepts."""
        self.tracker.log(values, step=step, **kwargs)

    @on_main_process
    def finish(self) -> None:
        if self.tracker is not None:
            self._close()

    def _close(self) -> None:
        self.tracker.finish()


def check(tracker: GeneralTracker) -> None:
    """Raises if a tracker lacks one of the three required attributes."""
    # `dir`, since a property may only work once the run is open.
    missing = [name for name in _REQUIRED if name not in dir(tracker)]
    if missing:
        raise NotImplementedError(
            f"{type(tracker).__name__} is not a complete tracker: it does not define {', '.join(missing)}. Define them "
            "in the class; `tracker` may be a property."
        )


def plain(value: Any) -> Any:
    """Returns the Python number in a tensor or array of one element, and any other value unchanged."""
    if isinstance(value, (bool, int, float, str)) or not hasattr(value, "item"):
        return value
    return value.item() if getattr(value, "size", None) == 1 or _elements(value) == 1 else value


def scalars(values: Mapping[str, Any]) -> dict[str, float]:
    """Returns the values that are numbers."""
    found = {name: plain(value) for name, value in values.items()}
    return {name: as_float(value) for name, value in found.items() if isinstance(value, (bool, int, float))}


def warn_skipped(tracker: GeneralTracker, key: str, value: Any, takes: str) -> None:
    """Warns, once for each key, that a service cannot log a value; `takes` is what it can log instead."""
    skipped_keys = tracker.__dict__.setdefault("_skipped", set())
    if key not in skipped_keys:
        skipped_keys.add(key)
        _log.warning(
            "%s cannot log %r, a %s: it takes %s. It is skipped; log it through get_tracker(%r, unwrap=True).",
            type(tracker).__name__, key, type(value).__name__, takes, tracker.name,
        )  # fmt: skip


def _elements(value: Any) -> int:
    numel = getattr(value, "numel", None)
    return int(numel()) if callable(numel) else -1
