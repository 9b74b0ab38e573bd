"""Profiles a part of the training with torch's profiler, set up from `ProfileKwargs`."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import torch

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.options.plugins import ProfileKwargs
from notebook_accel.train.ranks.state import PartialState

if TYPE_CHECKING:
    from torch.profiler import ProfilerActivity, profile

PROFILE_PATTERN_NAME = "profile_{suffix}.json"
_ACTIVITIES = {"cpu": "CPU", "cuda": "CUDA", "xpu": "XPU"}


def build(kwargs: ProfileKwargs) -> profile:
    """The profiler that these arguments describe.

    Raises:
        ConfigurationError: An activity is unknown, or its device is not available.
    """
    from torch.profiler import profile, schedule

    return profile(
        activities=None if kwargs.activities is None else [_activity(name) for name in kwargs.activities],
        schedule=None if kwargs.schedule_option is None else schedule(**kwargs.schedule_option),
        on_trace_ready=kwargs.on_trace_ready,
        record_shapes=kwargs.record_shapes,
        profile_memory=kwargs.profile_memory,
        with_stack=kwargs.with_stack,
        with_flops=kwargs.with_flops,
        with_modules=kwargs.with_modules,
    )


class Profiled:
    """Profiles a `with` block; `as` gives the profiler. Each rank writes its trace if there is a folder for it."""

    def __init__(self, kwargs: ProfileKwargs) -> None:
        self._profiler = build(kwargs)
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


def _activity(name: str) -> ProfilerActivity:
    from torch.profiler import ProfilerActivity

    if name not in _ACTIVITIES:
        raise ConfigurationError(f"activities=[{name!r}] is not known: choose from {', '.join(_ACTIVITIES)}")
    if name != "cpu" and not getattr(torch, name).is_available():
        raise ConfigurationError(f"activities=[{name!r}] has no effect: torch finds no {name} device here")
    return getattr(ProfilerActivity, _ACTIVITIES[name])  # type: ignore[no-any-return]
