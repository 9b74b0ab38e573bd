"""Profiles a part of the training with torch's profiler, set up from `ProfileKwargs`."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from notebook_accel.train.options.plugins import ProfileKwargs
from notebook_accel.train.ranks.state import PartialState

if TYPE_CHECKING:
    from torch.profiler import profile

PROFILE_PATTERN_NAME = "profile_{suffix}.json"


class Profiled:
    """Profiles a `with` block; `as` gives the profiler. Each rank writes its trace if there is a folder for it."""

    def __init__(self, kwargs: ProfileKwargs) -> None:
        self._profiler = kwargs.build()
        self._folder = None if kwargs.output_trace_dir is None else Path(kwargs.output_trace_dir)

    def __enter__(self) -> profile:
        self._profiler.__enter__()  # type: ignore[no-untyped-call]
        return self._profiler

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._profiler.__exit__(kind, error, traceback)  # type: ignore[no-untyped-call]
        if error is not None or self._folder is None:
            return
        state = PartialState()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._profiler.export_chrome_trace(str(self._folder / PROFILE_PATTERN_NAME.format(suffix=state.process_index)))
        state.wait_for_everyone()
