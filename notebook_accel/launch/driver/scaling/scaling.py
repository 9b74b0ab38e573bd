"""Runs a function with several numbers of ranks, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from notebook_accel.errors import ConfigurationError
from notebook_accel.launch.driver.launcher import notebook_launcher
from notebook_accel.launch.driver.scaling.scaling_curve import ScalingCurve
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.show import front_end

_OURS = ("num_processes", "block", "detach", "in_process")
"""The arguments of `notebook_launcher` that `scaling` sets itself, or that it can't measure with."""


def scaling(
    function: Callable[..., Any], num_processes: Sequence[int], args: Sequence[Any] = (), **options: Any
) -> ScalingCurve:
    """Runs a function with each number of ranks, one after the other, and returns how the throughput grows.

    The throughput counts samples per second of all ranks together, measured in the training steps with prepared
    objects, without the first step. If batches have no fixed size, it counts steps; without measured steps, whole runs.

    Args:
        function: What to run: a function that trains for some seconds.
        num_processes: The numbers of ranks, such as `[1, 2, 4]`. The efficiency compares with the first.
        args: The positional arguments of the function.
        options: Further arguments of `notebook_launcher`.

    If one of the runs fails or is interrupted, those before it are shown above the error.

    Returns:
        A table with `points`, which a notebook draws as bars, and the `jobs`.

    Raises:
        ConfigurationError: The numbers are not different whole numbers above 0, or an option can't be used here.
        RankError: A rank failed.
    """
    numbers = list(num_processes) if isinstance(num_processes, Sequence) else []
    if not numbers or len({*numbers}) < len(numbers) or not all(type(each) is int and each > 0 for each in numbers):
        raise ConfigurationError(
            f"num_processes={num_processes!r} can't be measured: give different whole numbers above 0, such as [1, 2]"
        )
    for name in _OURS:
        if name in options:
            raise ConfigurationError(f"scaling() sets {name} itself: leave it out")
    jobs: dict[int, Job] = {}
    try:
        for number in numbers:
            jobs[number] = _run(function, args, number, options)
    except BaseException:
        if jobs:
            left = ", ".join(map(str, numbers[len(jobs) :]))
            front_end.current.notice(f"{_curve(jobs)!r}\nnot measured, because of the error below: {left}")
        raise
    return _curve(jobs)


def _curve(jobs: Mapping[int, Job]) -> ScalingCurve:
    first = next(iter(jobs.values()))
    return ScalingCurve(f"{first.title} by the number of ranks", jobs)


def _run(function: Callable[..., Any], args: Sequence[Any], number: int, options: dict[str, Any]) -> Job:
    job: Job = notebook_launcher(function, args, number, block=False, **options)
    try:
        job.result()
    except KeyboardInterrupt:
        job.cancel()
        job.wait()
        raise
    return job
