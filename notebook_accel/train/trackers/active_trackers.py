"""The trackers of one Accelerator: resolves `log_with`, opens the runs, and logs to all of them."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from notebook_accel import events
from notebook_accel.errors import ConfigurationError
from notebook_accel.rehearsal_flag import rehearsing
from notebook_accel.train.options.enums import LoggerType
from notebook_accel.train.trackers.base import GeneralTracker, check, is_main_process, scalars


@dataclass(frozen=True)
class TrackerRow:
    """One tracker of this package."""

    file: str
    """Its module in this folder, imported when it is chosen."""
    name: str
    """Its class in that module."""
    package: str
    """The package that it imports, which must be installed."""

    def load(self) -> Any:
        """The tracker's class."""
        return getattr(importlib.import_module(f"{__package__}.{self.file}"), self.name)


TRACKERS = {
    LoggerType.TENSORBOARD: TrackerRow("tensorboard", "TensorBoardTracker", "tensorboard"),
    LoggerType.WANDB: TrackerRow("wandb", "WandBTracker", "wandb"),
    LoggerType.TRACKIO: TrackerRow("trackio", "TrackioTracker", "trackio"),
    LoggerType.COMETML: TrackerRow("comet", "CometMLTracker", "comet_ml"),
    LoggerType.MLFLOW: TrackerRow("mlflow", "MLflowTracker", "mlflow"),
    LoggerType.AIM: TrackerRow("aim", "AimTracker", "aim"),
    LoggerType.CLEARML: TrackerRow("clearml", "ClearMLTracker", "clearml"),
    LoggerType.DVCLIVE: TrackerRow("dvclive", "DVCLiveTracker", "dvclive"),
    LoggerType.SWANLAB: TrackerRow("swanlab", "SwanLabTracker", "swanlab"),
}
_log = logging.getLogger(__name__)
_registered: dict[str, type[GeneralTracker]] = {}
"""The user's own classes that can be chosen by name."""
Named = str | LoggerType | GeneralTracker | type[GeneralTracker]
"""The type of `log_with`. A class is accepted only to raise an error that says to pass an instance."""


def register_tracker_class(tracker_class: type[GeneralTracker]) -> None:
    """Makes a tracker of the user's own available by its name: `Accelerator(log_with="my_tracker")`.

    Args:
        tracker_class: Its class, with `name` and `requires_logging_directory`. It is called with the name of the
            project, with `logging_dir` if it requires one, and with its `init_kwargs`.

    Raises:
        ConfigurationError: It is not such a class.
    """
    if not (isinstance(tracker_class, type) and issubclass(tracker_class, GeneralTracker)):
        raise ConfigurationError(f"{tracker_class!r:.80} is not a subclass of GeneralTracker")
    missing = [name for name in ("name", "requires_logging_directory") if not hasattr(tracker_class, name)]
    if missing or not tracker_class.name:
        raise ConfigurationError(
            f"{tracker_class.__name__} must define {' and '.join(missing) or 'a name that is not empty'} in the class"
        )
    if (
        tracker_class.name in (*_registered, *map(str, TRACKERS))
        and _registered.get(tracker_class.name) != tracker_class
    ):
        _log.warning("%s replaces the tracker %r.", tracker_class.__name__, tracker_class.name)
    _registered[tracker_class.name] = tracker_class


def get_available_trackers() -> list[LoggerType | str]:
    """The trackers that can be chosen by name here: their packages are installed, or they were registered."""
    return [*(kind for kind, row in TRACKERS.items() if _installed(row)), *_registered]


class TrackerGroup:
    """Logs to all trackers that the user chose; on ranks other than 0 it does nothing.

    Args:
        log_with: Names, `"all"` for all whose package is installed, or the user's own trackers.
        logging_dir: The folder for trackers that write files.

    Raises:
        ConfigurationError: A name is unknown, its package is missing, or it needs a folder and none was given.
    """

    def __init__(
        self,
        log_with: Named | Iterable[Named] | None = None,
        logging_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self._logging_dir = logging_dir
        self._chosen = [] if rehearsing() else filter_trackers(log_with, logging_dir)
        self._is_main = is_main_process()
        self.trackers: list[GeneralTracker] = []
        """The trackers that have been started."""
        self._warned = False
        """Whether the user has been warned that no run is open."""
        self._ended = False
        """Whether runs were open, and are closed again."""

    @property
    def log_with(self) -> list[str | GeneralTracker]:
        """The trackers that the user chose."""
        return list(self._chosen)

    def start(
        self,
        project_name: str,
        config: dict[str, Any] | None = None,
        init_kwargs: Mapping[str, dict[str, Any]] | None = None,
    ) -> None:
        """Opens a run with each tracker; see `Accelerator.init_trackers`."""
        given = {str(name): kwargs for name, kwargs in (init_kwargs or {}).items()}
        self._refuse_unknown("init_kwargs", given)
        if not self._is_main:
            return
        self.finish()  # closes the runs of an earlier call, for instance if a cell is run again
        self.trackers = [self._make(each, project_name, given) for each in self._chosen]
        for tracker in self.trackers:
            tracker.start()
            if config is not None:
                tracker.store_init_configuration(config)

    def log(
        self, values: dict[str, Any], step: int | None = None, log_kwargs: Mapping[str, dict[str, Any]] | None = None
    ) -> None:
        """Logs values by name with each tracker, and emits the numbers as an event for the views."""
        if not self._is_main:
            return
        if events.has_sink():
            numbers = scalars(values)
            if numbers:
                events.emit(events.Metrics(numbers, step))
        if log_kwargs:
            self._refuse_unknown("log_kwargs", log_kwargs)
        if self._chosen and not self.trackers and not self._warned:
            self._warned = True
            _log.warning(
                "%s received no values, since no run is open: call init_trackers before logging, and end_training "
                "afterwards.", ", ".join(self._names()),
            )  # fmt: skip
        for tracker in self.trackers:
            tracker.log(values, step=step, **(log_kwargs or {}).get(tracker.name, {}))

    def get(self, name: str, unwrap: bool = False) -> Any:
        """Returns a started tracker, or its service's object.

        On other ranks, and if no tracker was chosen, returns an object whose methods do nothing.

        Raises:
            ConfigurationError: There is no tracker of that name, or it is not started.
        """
        if not self._is_main or not self._chosen:
            return _NullTracker()
        for tracker in self.trackers:
            if tracker.name == name:
                found: Any = tracker
                return found.tracker if unwrap else found
        names = self._names()
        if name in names:
            if self._ended:
                raise ConfigurationError(
                    f"end_training has closed the tracker {name!r}: call get_tracker before end_training, or "
                    "init_trackers for another run"
                )
            raise ConfigurationError(f"the tracker {name!r} is not started: call init_trackers first")
        raise ConfigurationError(f"there is no tracker {name!r}; log_with chose {', '.join(names) or 'none'}")

    def finish(self) -> None:
        """Closes the runs."""
        started, self.trackers = self.trackers, []
        self._ended = self._ended or bool(started)
        for tracker in started:
            tracker.finish()

    def _make(self, chosen: str | GeneralTracker, project: str, given: Mapping[str, Any]) -> GeneralTracker:
        if isinstance(chosen, GeneralTracker):
            return chosen
        kwargs = dict(given.get(str(chosen), {}))
        make = _class(chosen)
        folder = [kwargs.pop("logging_dir", self._logging_dir)] if make.requires_logging_directory else []
        tracker = make(project, *folder, **kwargs)
        assert isinstance(tracker, GeneralTracker)
        return tracker

    def _names(self) -> list[str]:
        # On other ranks a user's tracker may have no name: its __init__ did not run there.
        return [
            str(getattr(each, "name", "?")) if isinstance(each, GeneralTracker) else str(each) for each in self._chosen
        ]

    def _refuse_unknown(self, argument: str, given: Mapping[str, Any]) -> None:
        names = self._names()
        unknown = [name for name in given if name not in names]
        if unknown and self._is_main:
            raise ConfigurationError(
                f"{argument} is for {', '.join(map(repr, unknown))}, but log_with chose "
                f"{', '.join(names) or 'no tracker'}"
            )


class _NullTracker(GeneralTracker):
    """Stands in for a tracker, and for any of its attributes, where there is none."""

    def __init__(self) -> None:
        super().__init__(_blank=True)

    def __getattr__(self, name: str) -> _NullTracker:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> _NullTracker:
        return self


def filter_trackers(
    log_with: Named | Iterable[Named] | None, logging_dir: str | os.PathLike[str] | None = None
) -> list[str | GeneralTracker]:
    """The trackers of `Accelerator(log_with=...)`, checked, with all that are installed in place of `"all"`.

    Args:
        log_with: Names, and trackers of the user's own.
        logging_dir: The folder for trackers that write files.

    Raises:
        ConfigurationError: A name is unknown, its package is missing, or it needs a folder and none was given.
    """
    if log_with is None:
        return []
    named = [log_with] if isinstance(log_with, (str, GeneralTracker, type)) else list(log_with)
    chosen: list[str | GeneralTracker] = []
    for each in named:
        if isinstance(each, GeneralTracker):
            if is_main_process():
                check(each)
            chosen.append(each)
        elif isinstance(each, type):
            raise ConfigurationError(f"log_with={each.__name__} is a class: pass a tracker, {each.__name__}(...)")
        elif str(each).lower() == LoggerType.ALL.value:
            chosen += [kind for kind, row in TRACKERS.items() if _installed(row) and kind not in chosen]
        else:
            chosen.append(_tracker_type(each))
    for kind in chosen:
        # A tracker that is passed was made with a folder of its own, if it needs one.
        needs_folder = not isinstance(kind, GeneralTracker) and _class(kind).requires_logging_directory
        if logging_dir is None and needs_folder:
            raise ConfigurationError(
                f"log_with={str(kind)!r} writes files, but has "
                "no folder: pass Accelerator(project_dir=...), or a ProjectConfiguration with a logging_dir"
            )
    return chosen


def _class(kind: str) -> Any:
    """The class of a tracker that was chosen by name."""
    return _registered[str(kind)] if str(kind) in _registered else TRACKERS[LoggerType(kind)].load()


def _tracker_type(name: object) -> str:
    if str(name) in _registered:
        return str(name)
    try:
        kind = LoggerType(str(name))
    except ValueError:
        raise ConfigurationError(
            f"log_with={name!r} is not a tracker: choose from {', '.join(each.value for each in TRACKERS)}, 'all', or "
            "pass a GeneralTracker of your own"
        ) from None
    if not _installed(TRACKERS[kind]):
        raise ConfigurationError(
            f"log_with={kind.value!r} needs a package that is not installed: pip install {TRACKERS[kind].package}"
        )
    return kind


def _installed(row: TrackerRow) -> bool:
    return importlib.util.find_spec(row.package) is not None
