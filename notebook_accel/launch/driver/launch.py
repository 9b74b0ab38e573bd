"""Runs a launch from its plan to its end: one job, with an attempt for each restart."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from notebook_accel.config import LaunchConfig
from notebook_accel.errors import HardwareError, LaunchError, NotebookAccelError
from notebook_accel.events import AttemptStarted, Returned
from notebook_accel.launch.driver import device_line
from notebook_accel.launch.driver.call_runner import AttemptOutcome, CallRunner, Ending
from notebook_accel.launch.driver.notifications import Notifications
from notebook_accel.launch.driver.stop_policy import ONE_CALL, RESUMABLE, SCRIPT, StopPolicy, StopReason, StopRequests
from notebook_accel.launch.engines import preloader
from notebook_accel.launch.engines.contract import Engine
from notebook_accel.launch.engines.ranks import Ranks
from notebook_accel.launch.job import output_log, rank_error
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.job.rank_state import RankState
from notebook_accel.launch.job.rules import NewRule
from notebook_accel.launch.journal.results import Results
from notebook_accel.launch.journal.saved_launch import SavedLaunch
from notebook_accel.launch.journal.writing import Journal
from notebook_accel.launch.plan import conflicts, elastic, environment, run_facts
from notebook_accel.launch.plan.elastic import Remaining
from notebook_accel.launch.plan.plan import Plan
from notebook_accel.launch.plan.ranks_spec import ranks_spec
from notebook_accel.launch.show import console, screens
from notebook_accel.launch.show.job_views import Views
from notebook_accel.launch.show.output import Output
from notebook_accel.launch.wire import payload
from notebook_accel.launch.wire.constants import Streams
from notebook_accel.launch.wire.event_loop import EventLoop
from notebook_accel.launch.wire.payload import Payload


def unpickled(ranks: Sequence[RankState]) -> tuple[list[Any] | None, Exception | None]:
    """The values that the ranks have returned, unpickled; or the error if one does not load."""
    values = []
    for state in ranks:
        assert state.returned is not None
        try:
            values.append(payload.unpack_value(state.returned.value))
        except Exception as problem:
            return None, rank_error.lost_value(state, problem)
        state.returned = Returned()  # frees the pickled copy
    return (None if all(value is None for value in values) else values), None


IMPORT_TIMEOUT = 10.0
"""Seconds to wait for an import; beyond that, each rank does it itself."""
_IMPORT_CHECK = 0.02
"""Seconds between two looks at whether it is done."""


class Launch:
    """Runs a plan as a job: an attempt, and further ones up to `max_restarts` while it fails."""

    def __init__(
        self,
        engine: Engine,
        planned: Plan,
        environ: Mapping[str, str],
        packed: Payload,
        name: str,
        open_view: Callable[[Job], console.View],
        *,
        detached: bool = False,
        saved: SavedLaunch | None = None,
        rules: Sequence[NewRule] = (),
        streams: Streams = Streams.CALLS,
    ) -> None:
        self.job = Job(
            name,
            planned.first_rank,
            planned.size,
            planned.device_text,
            world_size=planned.world_size,
            local_size=planned.local_size,
            label=planned.config.label,
            notice=planned.notice,
            devices=planned.device_ids,
            title=planned.config.title,
            notes=planned.config.notes,
            call=planned.call,
            arguments=planned.arguments,
            versions=run_facts.versions(),
            checkpoint_dir="" if saved is None else saved.checkpoint_dir,
            part_of=planned.part_of,
            co2_per_kwh=planned.config.co2_per_kwh,
        )
        self.job.begin_with(rules)
        is_command = streams is not Streams.CALLS
        self.journal = Journal(self.job, detached=detached, is_command=is_command, saved=saved)
        self.notifications = Notifications(self.job, planned.config.notify, environ)
        self._open_view = open_view
        self.results: Results | None = None
        """Where what the ranks return is stored for other processes; `None`: this one takes it."""
        self.requests = StopRequests()
        self.job.runner.cancel = lambda: self.requests.submit(StopReason.CANCEL)
        self.job.runner.show = lambda: console.current.show(self.job)
        self.job.runner.notice_elsewhere = console.noticing_elsewhere()
        self._screen = screens.of(self.job)
        self._engine = engine
        self._plan = planned
        """The plan of the current attempt."""
        self._remaining: Remaining | None = None
        self._environ = {**environ, **environment.of_job(self.job.id), **environment.of_time_limit(planned.config)}
        self._payload = packed
        self._streams = streams

    @property
    def saves_checkpoints(self) -> bool:
        """Whether the ranks may save a checkpoint before they end."""
        return bool(self._plan.config.checkpoint_dir)

    @property
    def _policy(self) -> StopPolicy:
        if self._streams is not Streams.CALLS:
            return SCRIPT
        return RESUMABLE if self.saves_checkpoints else ONE_CALL

    def run(self) -> None:
        """Runs the job, once announced, to its end. An error of this package becomes its outcome; none is raised."""
        view = Views(self.job, self._open_view, self.journal)
        try:
            self._run_attempts(view)
        except NotebookAccelError as error:
            self.job.finish(Status.FAILED, error=error)
        except BaseException as error:
            self.job.finish(Status.FAILED, error=error)
            raise
        finally:
            view.finish()
            self.close()

    def collect(self) -> tuple[Any, Exception | None]:
        """The value of the job, once its ranks have returned; or the error if it can't be had."""
        return unpickled(self.job.ranks) if self.results is None else self.results.collect(self.job.ranks)

    def share(self) -> None:
        """Lets launches of later processes start faster."""
        self._engine.share()

    def close(self) -> None:
        """Frees what the launch holds, once it has run, or if it can't be run."""
        self._payload.close()

    def announce(self) -> None:
        """Records a job that others look for, before its ranks start, and names others that save to its folder.

        Jobs look for those on their GPUs, and for those that save checkpoints to their folder.
        """
        folder = self.job.launched.checkpoint_dir
        if self._plan.config.wait == "free":
            device_line.join(self.job)
        if folder or set(self.job.launched.devices) - {"cpu"}:
            self.journal.begin()
        if folder:
            is_whole = self._plan.size == self._plan.world_size
            others = conflicts.unnoticed(self.job.notice, self.job.id, folder) if is_whole else ""
            if others:
                console.current.notice(others)

    def _run_attempts(self, view: Views) -> None:
        if self._plan.config.wait == "free":
            line = device_line.DeviceLine(self.job, self.journal, self._plan, self._environ)
            if not line.wait(view, self.requests):
                self._stop("before its ranks started")
                return
            self._plan = line.plan_with_free(self._engine)
        first, config = self._plan, self._plan.config
        if config.min_processes is not None:
            self._remaining = Remaining(first, self._engine, self._environ)
        self._await_imports(view)
        deadline = None if config.timeout is None else time.monotonic() + config.timeout
        before = None
        for number in range(config.max_restarts + 1):
            try:
                attempt = self._attempt(number, view, deadline)
            except LaunchError as error:
                # The engine's process was killed from outside. If no user code has started, retry with a new one.
                if not error.engine_lost or any(state.pid is not None for state in self.job.ranks):
                    raise
                attempt = self._attempt(number, view, deadline)
            leaving = rank_error.leaving(self.job.ranks)
            is_last = number == config.max_restarts or self.requests.received or self._is_preempted(leaving)
            if attempt.ending is not Ending.FAILED or is_last:
                self._conclude(attempt)
                return
            before, earlier = rank_error.repeatable(self.job.ranks), before
            if before is not None and before == earlier:
                console.current.notice(
                    f"the same exception was raised at the same step, {before[0]}, as in the previous attempt, so the "
                    "job is not started again"
                )
                self._conclude(attempt)
                return
            why = leaving or str(self._error(attempt)).split("\n", 1)[0]
            try:
                self._plan = self._next_plan(attempt, leaving)
            except HardwareError as error:
                console.current.notice(f"{error}, so the job is not started again")
                self._conclude(attempt)
                return
            fewer = elastic.describe_change(first, self._plan)
            console.current.notice(f"{why}; starting again{fewer} (attempt {number + 2} of {config.max_restarts + 1})")

    def _await_imports(self, view: Views) -> None:
        """Waits until the packages that the function needs have been imported once for all ranks.

        The first launch of a kernel may come before that. If each rank imported them as well, it would compete with the
        others for the cores, and would be done later.
        """
        modules, deadline = preloader.needed(self._payload.used_names), time.monotonic() + IMPORT_TIMEOUT
        while self._engine.is_importing(modules) and time.monotonic() < deadline and not self.requests.received:
            view.refresh()
            time.sleep(_IMPORT_CHECK)

    def _is_preempted(self, leaving: str) -> bool:
        """Whether the training was ended from outside, unless it can continue on other machines than those leaving."""
        return rank_error.is_preempted(self.job.ranks) and not leaving

    def _next_plan(self, attempt: AttemptOutcome, leaving: str) -> Plan:
        """The plan of the next attempt.

        Raises:
            HardwareError: Too little is left for one.
        """
        if self._remaining is not None:
            return self._remaining.plan_after(self.job, oom_killed=attempt.oom_killed)
        return elastic.without_leaving(self._plan, self.job, self._engine) if leaving else self._plan

    def _attempt(self, number: int, view: Views, deadline: float | None) -> AttemptOutcome:
        self.job.apply(None, AttemptStarted(number, self._plan.size, self.job.step, self._plan.device_ids))
        started = self._start(number)
        try:
            view.open()  # while the ranks start
            ranks = [state.rank for state in self.job.ranks]
            output = Output(ranks, self._plan.label, self._screen, output_log.where_all_are(self.job.id))
            runner = CallRunner(
                started,
                self.job,
                view,
                output,
                self.requests,
                deadline=deadline,
                stall_after=self._plan.config.stall_after,
                remote_ranks=self._plan.world_size - len(self.job.ranks),
                policy=self._policy,
            )
            return runner.run(self._payload)
        finally:
            started.close()

    def _start(self, number: int) -> Ranks:
        """Starts the ranks of an attempt."""
        spec = ranks_spec(self._plan, self._environ, attempt=number, streams=self._streams)
        return self._engine.start(spec, EventLoop())

    def _conclude(self, attempt: AttemptOutcome) -> None:
        job = self.job
        if attempt.ending is Ending.RETURNED:
            value, error = self.collect()
            if self.saves_checkpoints and job.began is None and self._plan.first_rank == 0:
                console.current.notice(_nothing_saved(job, self._plan.config))
            job.finish(Status.FAILED if error else Status.DONE, value, error)
        elif attempt.ending is Ending.TIMED_OUT:
            assert self._plan.config.timeout is not None
            late = rank_error.timeout(
                job.ranks, attempt.stacks_at_timeout, self._plan.config.timeout, world_size=self._plan.world_size
            )
            job.finish(Status.FAILED, error=late)
        elif attempt.ending is Ending.FAILED:
            job.finish(Status.FAILED, error=self._error(attempt))
        else:
            self._stop(f"after {job.seconds:.1f} s; its ranks have ended")

    def _stop(self, when: str) -> None:
        """Ends the job as it was requested."""
        if self.requests.received[0] is StopReason.CANCEL:
            self.job.finish(Status.CANCELLED)
        else:
            error = console.interrupted(f"{self.job.title} was interrupted {when}")
            self.job.finish(Status.INTERRUPTED, error=error)

    def _error(self, attempt: AttemptOutcome) -> Exception:
        return rank_error.error(self.job.ranks, oom_killed=attempt.oom_killed, world_size=self._plan.world_size)


def _nothing_saved(job: Job, config: LaunchConfig) -> str:
    source = config.cite("checkpoint_dir")
    return (
        f"{'the folder for checkpoints' if source else 'checkpoint='}{source} had no effect: {job.title} has not run a "
        f"loop over Accelerator.epochs, so nothing is saved to {config.checkpoint_dir}. If it trains, write `for epoch "
        f"in accelerator.epochs(10):`; otherwise, {'remove the setting' if source else 'leave out checkpoint='}"
    )
