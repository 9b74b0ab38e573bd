"""A group of persistent ranks: starts them, runs one call at a time on them, and recovers after a failed call."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from notebook_accel import hardware
from notebook_accel.config import LaunchConfig
from notebook_accel.errors import LaunchError, RankError
from notebook_accel.events import AttemptStarted, Phase, PhaseChanged
from notebook_accel.launch.driver.call_runner import AttemptOutcome, CallRunner, Ending
from notebook_accel.launch.driver.launch import unpickled
from notebook_accel.launch.driver.stop_policy import PERSISTENT, StopReason, StopRequests, catch_sigint
from notebook_accel.launch.engines.ranks import Life
from notebook_accel.launch.job import output_log, rank_error
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.plan import plan
from notebook_accel.launch.plan.ranks_spec import ranks_spec
from notebook_accel.launch.show import console, screens
from notebook_accel.launch.show.output import Output
from notebook_accel.launch.wire import payload
from notebook_accel.launch.wire.event_loop import EventLoop
from notebook_accel.launch.wire.mirrored import notebook_state
from notebook_accel.launch.wire.payload import Payload
from notebook_accel.notebook.cells import notices
from notebook_accel.notebook.cells.notices import listed
from notebook_accel.notebook.cells.on_rank import worker
from notebook_accel.notebook.cells.variable_sync import VariableSync, pack_call

_KEPT_LINES = 1000
"""How many of a rank's last lines `%accelerate logs` can show."""


@dataclass
class RankStatus:
    """The state of one rank, for the status of `%accelerate`."""

    rank: int
    state: str
    pid: int | None = None
    resident: int = 0
    """Bytes."""


class PersistentRanks:
    """Started ranks, ready for cells.

    Args:
        config: The settings to start them with.
        namespace: The notebook's variables.
        is_hidden: Whether a variable was defined by IPython rather than by the user.
    """

    def __init__(self, config: LaunchConfig, namespace: dict[str, Any], is_hidden: Callable[[str, Any], bool]) -> None:
        environ = {**os.environ, **config.env}
        found = hardware.detect(environ)
        engine = plan.engine_for(config, found)
        if not engine.isolated:
            raise LaunchError(
                f"the {engine.name} engine can't keep ranks running between cells: run the cell without %%accelerate, "
                "or choose another engine"
            )
        self.plan = plan.make(config, found, engine)
        if self.plan.threaded:
            raise LaunchError(
                f"the {self.plan.size} ranks on {self.plan.device_text} are threads of one process and share its "
                "variables, but cells need a process for each rank. Put the code into a function and launch it, or "
                "run the cell on a single rank, which has its own process: %%accelerate -n 1"
            )
        if self.plan.notice:
            console.current.write("stdout", f"{self.plan.notice}\n")  # it warns of nothing
        self.lines: list[deque[str]] = [deque(maxlen=_KEPT_LINES) for _ in self.members]
        self.running: Job | None = None
        """The job of the cell that is running; `None` if there is none."""
        self.lost = ""
        """Why the ranks can no longer be used; empty while they can."""
        self.cells = 0
        """The number of cells that have run."""
        self.failed: frozenset[int] = frozenset()
        """The ranks on which the most recent failing cell failed."""
        self.error: RankError | None = None
        """What that cell has raised."""
        self._generation = 0
        self._may_be_broken = False
        """The last cell failed or was interrupted, so ranks may be at different collectives of their process group."""
        state = notebook_state.capture()
        self.variables = VariableSync(namespace, is_hidden, self.members, self._call_and_wait, state)
        self._ranks = engine.start(ranks_spec(self.plan, environ), EventLoop())
        try:
            self.call_on_ranks(worker.begin, state=state)
        except KeyboardInterrupt:
            self._ranks.close()
            raise console.interrupted(
                "the ranks were interrupted while they started, and have ended; the next cell on every rank starts "
                "new ones"
            ) from None
        except BaseException:
            self._ranks.close()
            raise

    @property
    def size(self) -> int:
        return self.plan.size

    @property
    def members(self) -> range:
        """All ranks."""
        return range(self.plan.size)

    @property
    def dead(self) -> dict[int, str]:
        """The ranks that have ended, and how each of them ended."""
        return {rank: notices.how_it_ended(exited) for rank, exited in sorted(self._ranks.exited.items())}

    @property
    def stuck(self) -> set[int]:
        """The ranks that did not stop when they were interrupted."""
        return set() if self.running else self._ranks.busy

    # Calls

    def call_on_ranks(
        self,
        function: Callable[..., Any],
        *args: Any,
        members: Sequence[int] | None = None,
        state: notebook_state.State | None = None,
    ) -> list[Any]:
        """Calls a function of this package on ranks; returns what each of them returns.

        Raises:
            RankError: One of them failed.
            KeyboardInterrupt: It was interrupted.
        """
        packed = pack_call((function, args, {}), state)
        return self._call_and_wait(packed, self.members if members is None else members, function.__name__)

    def _call_and_wait(self, packed: Payload, members: Sequence[int], name: str) -> list[Any]:
        requests = StopRequests()
        try:
            with catch_sigint(requests):
                job = self.call(Job(name, 0, self.size), packed, requests, members=members)
            found: list[Any] = job.result()
            return found
        finally:
            packed.close()

    def call(
        self,
        job: Job,
        packed: Payload,
        requests: StopRequests,
        *,
        members: Sequence[int] | None = None,
        view: console.View | None = None,
        digest: Callable[[list[Any]], Any] | None = None,
    ) -> Job:
        """Runs a call to its end. The job's result is the members' values, passed through `digest` if it is given."""
        members = self.members if members is None else members
        output = Output(members, self.plan.label, screens.of(job), output_log.where_all_are(job.id))
        view = view or console.NoView(job)
        job.apply(None, AttemptStarted(0))
        for rank in set(self.members).difference(members):
            job.apply(rank, PhaseChanged(Phase.IDLE))
        runner = CallRunner(
            self._ranks,
            job,
            view,
            output,
            requests,
            stall_after=self.plan.config.stall_after,
            policy=PERSISTENT,
            members=members,
        )
        try:
            attempt = runner.run(packed)
            view.refresh()  # a cell that has just become worth recording is recorded before it ends
        except LaunchError as error:
            self.lost = str(error)
            job.finish(Status.FAILED, error=error)
            return job
        finally:
            for rank in members:
                self.lines[rank].extend(line.text for line in job.ranks[rank].lines)
        failed = frozenset(rank for rank in members if job.ranks[rank].failed and not job.ranks[rank].interrupted)
        self.failed = failed or self.failed
        self._may_be_broken |= attempt.escalated or attempt.ending is Ending.FAILED
        self._conclude(job, attempt, members, requests, digest or (lambda values: values))
        return job

    def _conclude(
        self,
        job: Job,
        attempt: AttemptOutcome,
        members: Sequence[int],
        requests: StopRequests,
        digest: Callable[[list[Any]], Any],
    ) -> None:
        if attempt.ending is Ending.RETURNED:
            values, problem = unpickled([job.ranks[rank] for rank in members])
            if problem is None:
                job.finish(Status.DONE, digest(values or []))
            else:
                job.finish(Status.FAILED, error=problem)
        elif attempt.ending is Ending.STOPPED and requests.received[0] is StopReason.CANCEL:
            job.finish(Status.CANCELLED)
        elif attempt.ending is Ending.STOPPED:
            text = f"{job.name} was interrupted after {job.seconds:.1f} s{self._survivors_text()}"
            job.finish(Status.INTERRUPTED, error=console.interrupted(text))
        else:
            states = [job.ranks[rank] for rank in members]
            raised = rank_error.error(states, oom_killed=attempt.oom_killed, world_size=self.size)
            raised.args = (f"{raised}{self._losses_text()}",)
            self.error = raised
            job.finish(Status.FAILED, error=raised)

    def _survivors_text(self) -> str:
        return self._losses_text() or "; the ranks and their variables are kept"

    def _losses_text(self) -> str:
        """A paragraph on ranks that are stuck or dead; empty if there are none."""
        if self._ranks.busy:
            return "\n\n" + notices.unresponsive(self._ranks.busy, self.names_lost(self._ranks.busy))
        if self._ranks.exited:
            return "\n\n" + notices.gone(self._ranks.exited, self.names_lost())
        return ""

    def names_lost(self, ranks: Collection[int] | None = None) -> str:
        """The end of a sentence: the variables that are lost if these ranks end, by default all. Empty without any."""
        names = self.own_names(ranks)
        return f"; these variables will be lost: {names}" if names else ""

    def own_names(self, ranks: Collection[int] | None = None) -> str:
        """The first of the variables that these ranks have bound, by default all; empty if there are none."""
        ranks = self.members if ranks is None else ranks
        names = list(dict.fromkeys(name for rank in ranks for name in reversed(self.variables.own(rank))))
        return listed(names)

    def call_free_rank(self, function: Callable[..., Any], *args: Any, members: Iterable[int], seconds: float) -> Any:
        """Calls a function of this package on the first of these ranks that is free; returns what it returns.

        Returns `None` if none of them is free, or if the call fails or takes longer than `seconds`. For the Tab
        key, which must not wait.
        """
        if self.running is not None or self.lost or self._ranks.listener is not None:
            return None
        try:
            self._ranks.catch_up()
            rank = next((each for each in members if each not in self.dead and each not in self._ranks.busy), None)
            if rank is None:
                return None
            packed = pack_call((function, args, {}))
            with contextlib.closing(packed), catch_sigint(StopRequests()):  # no interrupt is raised within
                value = self._ranks.call_idle(rank, packed, seconds)
        except LaunchError as error:
            self.lost = str(error)
            return None
        return None if value is None else payload.unpack_value(value)

    # Between two calls

    def ensure_ready(self, members: Collection[int]) -> None:
        """Checks that the ranks can run a cell, and repairs their process group if it may be broken.

        Raises:
            LaunchError: The ranks can't run a cell.
        """
        if self.running is not None:
            raise LaunchError(
                f"{self.running.name} still runs on these ranks: wait for it (its job has wait()), or end it with "
                "`%accelerate interrupt`"
            )
        if not self.lost:
            try:
                self._ranks.catch_up()
            except LaunchError as error:
                self.lost = str(error)
        if self.lost:
            raise LaunchError(f"the ranks are gone: {self.lost}\nRun `%accelerate restart` to start new ones.")
        for rank, how in self.dead.items():
            if rank in members:
                raise LaunchError(notices.dead(rank, how, set(self.members) - self.dead.keys()))
        if self._ranks.busy & set(members):
            raise LaunchError(notices.still_busy(self._ranks.busy, self.names_lost(self._ranks.busy)))
        if self._may_be_broken and not self.dead and not self._ranks.busy:
            self._repair_group()

    def _repair_group(self) -> None:
        """Moves the ranks to a new process group if the old one is unusable, and makes the replicas of models equal."""
        found = self.call_on_ranks(worker.health)
        self.variables.after({rank: health.bound for rank, health in enumerate(found)})
        if any(health.severed for health in found) or len({health.operations for health in found}) > 1:
            self._generation += 1
            self.call_on_ranks(worker.renew, self._generation)
        notice = self.call_on_ranks(worker.make_equal)[0]
        if notice:
            console.current.notice(notice)
        self._may_be_broken = False

    def signal(self, rank: int, signum: int) -> None:
        """Sends a signal to a rank."""
        self._ranks.signal(rank, signum)

    def stop(self) -> None:
        """Cancels a cell that runs in the background, and ends the ranks. Idle ranks run their exit handlers."""
        job = self.running
        if job is not None and job.cancel():
            job.cancel()  # a second cancel kills them without a grace period
            job.wait()
        self._ranks.stop()

    def describe(self) -> list[RankStatus]:
        """The state of each rank."""
        rows = []
        for rank in self.members:
            row = RankStatus(rank, "idle")
            process = self._ranks.processes[rank]
            if process.hello is not None:
                row.pid = process.hello.pid
            if process.heartbeat is not None:
                row.resident = process.heartbeat.resident
            if rank in self.dead:
                row.state = self.dead[rank]
            elif process.life is Life.BUSY:
                row.state = "busy"
            rows.append(row)
        return rows
