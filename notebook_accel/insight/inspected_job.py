"""The methods and attributes of a job that show what its ranks do, and where their time goes."""

from __future__ import annotations

import concurrent.futures
import contextlib
from typing import TYPE_CHECKING

from notebook_accel.insight import advice, step_times
from notebook_accel.launch.job import report_log, requests
from notebook_accel.launch.job.requests import JobHandle, short_errors

if TYPE_CHECKING:
    from pandas import DataFrame

    from notebook_accel.insight import collectives as last_collectives
    from notebook_accel.insight.explanation import Explanation
    from notebook_accel.insight.flamegraph import Flamegraph
    from notebook_accel.insight.profiles import JobProfile
    from notebook_accel.launch.job.location import JobStacks, StacksByRank


class InspectedJob(JobHandle):
    """A job that can be looked into, without disturbing its ranks.

    What takes a class or a module of its own is imported by the method that needs it, since most jobs never do.
    """

    @property
    def metrics(self) -> DataFrame | list[dict[str, float | int | None]]:
        """Every report so far, one row each: `rank`, `step`, `seconds` since the job began, and the values by name.

        The rows are ordered by rank, and those of a rank in the order in which it reported. If the job was started
        again after a failure, the column `attempt` tells the attempts apart, from 0. A DataFrame if pandas is
        installed, otherwise a list of dicts.

        Raises:
            JobLostError: The reports were too many for memory, and their file is gone.
        """
        return report_log.table(self.report_log.read(), self._start.first, self.started)

    @property
    def anatomy(self) -> DataFrame | list[step_times.Row]:
        """What a training step takes so far, one row for each rank that trains with prepared objects.

        `seconds` is the mean of a step, and `data`, `copy`, `forward`, `backward`, `sync`, `optimizer` and `rest` are
        its parts; with `_share` after the name, as a fraction of the step. `samples_per_second` is missing if batches
        have no fixed size. The first step is left out. A DataFrame if pandas is installed, otherwise a list of dicts.
        """
        return step_times.table((state.rank, state.step_times) for state in self._ranks)

    @property
    def advice(self) -> list[str]:
        """What would make training faster: sentences with their evidence. Empty if nothing seems wrong."""
        return advice.advice({state.rank: state.step_times for state in self._ranks if state.step_times is not None})

    def explain(self) -> Explanation:
        """Says why the job has failed, is stalled, or is slow, each with the evidence for it.

        It is made from what is recorded, so it doesn't disturb the ranks, and works after the job has ended. It prints
        as text; `findings` has the parts, and `as_json()` a dict for programs.
        """
        from notebook_accel.insight import explanation

        return explanation.explain(self)

    def log(self, rank: int | None = None, last: int | None = 1000) -> str:
        """The last lines that the ranks have written, in the order of arrival, without colors.

        They come from the job's journal, also if another process runs the job or it has ended. The journal has up to
        128 MB of lines.

        Args:
            rank: The global rank. Defaults to all ranks of the job, whose lines are then labeled: `[3] loss 0.2`.
            last: The number of lines; `None` for all.

        Raises:
            ConfigurationError: An argument is out of range.
            JobLostError: The lines can't be read, for example because the job's journal has been removed.
        """
        from notebook_accel.launch.job import output_log

        lines = output_log.last_lines(self.output_log, [state.rank for state in self._ranks], rank, last)
        return output_log.as_text(lines, labeled=rank is None)

    def stacks(self, timeout: float = 5.0) -> JobStacks:
        """Returns the current Python stack of each thread of each rank, without disturbing the ranks.

        If a rank is in C code that holds the GIL, its stacks are read from outside. A rank that does not report its
        stacks within `timeout` seconds has none in the result; the same is true of all ranks if another process runs
        the job and does not answer.

        Raises:
            ConfigurationError: `timeout` is not a number of seconds.
        """
        from notebook_accel.launch.job import location

        timeout = requests.checked_timeout(timeout)
        answer: concurrent.futures.Future[StacksByRank] = concurrent.futures.Future()
        requests.request_stacks(self.runner.request_ranks, answer.set_result)
        stacks_by_rank: StacksByRank = {}
        with contextlib.suppress(concurrent.futures.TimeoutError):
            stacks_by_rank = answer.result(timeout)
        if not stacks_by_rank and self.status.ended:
            note = f"{self.title} has ended ({self.status.value}), so its ranks have no stacks"
            return location.JobStacks((), {}, note)
        where = [location.of(state, stacks_by_rank.get(index, ())) for index, state in enumerate(self._ranks)]
        by_rank = {self._ranks[index].rank: threads for index, threads in stacks_by_rank.items()}
        return location.JobStacks(where, by_rank)

    @short_errors
    def flamegraph(self, seconds: float = 5.0, rank: int | None = None, *, rate: float = 100.0) -> Flamegraph:
        """Samples where the ranks spend their time in Python, and returns it as a flame graph.

        The job keeps running, and needs no preparation. A call into C code, such as an operation of torch, counts for
        the line that makes the call. If the call ends while it is sampled, the flame graph has what came before.

        Args:
            seconds: How long to sample, at most 600.
            rank: The global rank to sample. Defaults to all ranks of the job.
            rate: Samples per second, at most 1,000.

        Raises:
            ConfigurationError: An argument is out of range, or the job has no such rank.
            JobEndedError: The job has ended.
            TimeoutError: No rank has reported samples.
        """
        from notebook_accel.insight import flamegraph

        return flamegraph.sample(self, seconds, rank, rate)

    @short_errors
    def profile(self, steps: int = 5, rank: int | None = None, *, timeout: float = 60.0) -> JobProfile:
        """Profiles the next training steps with torch's profiler, and returns what they spend their time on.

        The job keeps running, and needs no preparation. A step ends when an optimizer of torch has stepped. Each rank
        begins at the end of the step that it is in. If its function ends first, the profile has the steps before.

        Args:
            steps: How many steps to profile, at most 1,000. A trace of more than 32 MB loses its shortest events.
            rank: The global rank to profile. Defaults to all ranks of the job.
            timeout: Seconds within which the steps have to end, at most 3,600.

        Raises:
            ConfigurationError: An argument is out of range, or the job has no such rank.
            JobEndedError: The job has ended.
            TimeoutError: No rank has sent a trace, for example because no step ended in time, or because another
                profiler of torch is active there; the message says which.
        """
        from notebook_accel.insight import profiles

        return profiles.profile(self, steps, rank, timeout)

    @short_errors
    def collectives(self, rank: int | None = None) -> DataFrame | list[last_collectives.Row]:
        """The last 100 collectives that each rank has begun, one row each, the oldest of a rank first.

        The columns are `rank`, `group` (the process group), `number` (in the group; the same on all its ranks),
        `operation`, `shapes` and `bytes` (of what the rank gives), `began` (seconds since the job began), `seconds`
        (missing with gloo, and while it runs), and `done`. A DataFrame if pandas is installed, otherwise a list of
        dicts.

        Args:
            rank: The global rank. Defaults to all ranks of the job.

        Raises:
            ConfigurationError: The job has no such rank.
            JobEndedError: The job has ended.
            TimeoutError: No rank has replied, or torch records no collectives there; the message says which.
        """
        from notebook_accel.insight import collectives

        return collectives.table(self, rank)
