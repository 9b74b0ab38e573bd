"""A group of ranks that cells run on, one after the other, from its start to its end."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from notebook_accel import hardware
from notebook_accel.config import LaunchConfig
from notebook_accel.errors import LaunchError
from notebook_accel.events import AttemptStarted, Exited, Heartbeat, Hello
from notebook_accel.launch.driver.attempt import Attempt, Ending
from notebook_accel.launch.driver.call import Run
from notebook_accel.launch.driver.group import RankGroup
from notebook_accel.launch.driver.stopping import KEPT, Reason, StopRequests, interrupts
from notebook_accel.launch.engines.contract import GroupSpec
from notebook_accel.launch.job import failure
from notebook_accel.launch.job.fold import Status
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.text import spans
from notebook_accel.launch.plan import environment, plan
from notebook_accel.launch.plan.rendezvous import meet
from notebook_accel.launch.show import front_end
from notebook_accel.launch.show.output import Output
from notebook_accel.launch.wire import mirror, payload
from notebook_accel.launch.wire.payload import Payload
from notebook_accel.notebook.cells.on_rank import worker
from notebook_accel.notebook.cells.variables import Variables

_KEPT_LINES = 1000
"""How many of a rank's last lines are kept, of all its cells."""


def _how(exited: Exited) -> str:
    if exited.lost:
        return f"was lost with machine {exited.lost}"
    return f"was killed by signal {exited.signal}" if exited.signal else f"ended with status {exited.code}"


@dataclass
class RankRow:
    """What is to be said of a rank."""

    rank: int
    state: str
    pid: int | None = None
    resident: int = 0
    """Bytes."""


class PersistentRanks:
    """Started ranks, ready for cells.

    Args:
        config: Who they are.
        variables: Makes the record of what they have of the notebook's variables, for so many ranks.
    """

    def __init__(self, config: LaunchConfig, variables: Callable[[int], Variables]) -> None:
        environ = {**os.environ, **config.env}
        found = hardware.detect(environ)
        engine = plan.engine_for(config, found)
        if not engine.isolated:
            raise LaunchError(
                f"the {engine.name} engine has no ranks that live on beside the notebook: run the cell without "
                "%%accelerate, or choose another engine"
            )
        self.plan = plan.make(config, found, engine)
        if self.plan.threaded:
            raise LaunchError(
                f"the {self.plan.size} ranks on {self.plan.place} are threads of one process, with one set of "
                "variables for all: cells need a process for each. Put the code into a function, and launch that; or "
                "run cells on one rank, which has a process to itself: %%accelerate -n 1"
            )
        if self.plan.notice:
            front_end.current.notice(self.plan.notice)
        self.variables = variables(self.plan.size)
        self.lines: list[deque[str]] = [deque(maxlen=_KEPT_LINES) for _ in self.members]
        self.running: Job | None = None
        """What runs on them now."""
        self.lost = ""
        """Why they can't be used any more, none of them."""
        self.cells = 0
        """How many have run."""
        self.failed: frozenset[int] = frozenset()
        """The ranks on which the last cell that failed has done so."""
        self._generation = 0
        self._is_suspect = False
        """The process group may be torn."""
        self._mirrored = mirror.capture()
        meeting = meet(config, 0)
        spec = GroupSpec(
            environments=environment.of_ranks(self.plan, meeting, environ),
            meeting=meeting,
            heartbeat=config.heartbeat,
            machines=self.plan.machines,
        )
        self._group = RankGroup(engine, spec)
        try:
            self.ask(worker.begin, state=self._mirrored)
        except BaseException:
            self._group.close()
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
        """The ranks that have ended, each with how."""
        return {rank: _how(exited) for rank, exited in sorted(self._group.exited.items())}

    @property
    def stuck(self) -> set[int]:
        """The ranks that were told to stop in vain."""
        return set() if self.running else set(self._group.busy)

    # Calls

    def ask(
        self,
        function: Callable[..., Any],
        *args: Any,
        members: Sequence[int] | None = None,
        state: mirror.State | None = None,
    ) -> list[Any]:
        """Calls a function of this package on ranks; returns what each of them returns.

        Raises:
            RankError: One of them failed.
            KeyboardInterrupt: It was interrupted.
        """
        packed, _ = self.variables.pack((function, args, {}), {}, (), state)
        return self._ask(packed, self.members if members is None else members, function.__name__)

    def _ask(self, packed: Payload, members: Sequence[int], name: str) -> list[Any]:
        requests = StopRequests()
        try:
            with interrupts(requests):
                job = self.call(Job(name, 0, self.size), packed, requests, members=members)
            found: list[Any] = job.result()
            return found
        finally:
            packed.close()
            requests.close()

    def call(
        self,
        job: Job,
        packed: Payload,
        requests: StopRequests,
        *,
        members: Sequence[int] | None = None,
        view: front_end.View | None = None,
        digest: Callable[[list[Any]], Any] | None = None,
    ) -> Job:
        """Runs a call to its end. The job's result is what the members have returned, or what `digest` makes of it."""
        members = self.members if members is None else members
        output = Output(members, self.plan.label, front_end.current.write)
        job.apply(None, AttemptStarted(0))
        run = Run(
            self._group,
            job,
            view or front_end.NoView(job),
            output,
            requests,
            stall_after=self.plan.config.stall_after,
            life=KEPT,
            members=members,
        )
        try:
            attempt = run(packed)
        except LaunchError as error:
            self.lost = str(error)
            job.finish(Status.FAILED, error=error)
            return job
        finally:
            for rank in members:
                self.lines[rank].extend(line.text for line in job.ranks[rank].lines)
        failed = frozenset(rank for rank in members if job.ranks[rank].failed and not job.ranks[rank].interrupted)
        self.failed = failed or self.failed
        self._is_suspect |= attempt.disturbed or attempt.ending is Ending.FAILED
        self._conclude(job, attempt, members, requests, digest or (lambda values: values))
        return job

    def _conclude(
        self,
        job: Job,
        attempt: Attempt,
        members: Sequence[int],
        requests: StopRequests,
        digest: Callable[[list[Any]], Any],
    ) -> None:
        if attempt.ending is Ending.RETURNED:
            values = [payload.unpack_value(job.ranks[rank].returned.value) for rank in members]  # type: ignore[union-attr]
            job.finish(Status.DONE, digest(values))
        elif attempt.ending is Ending.STOPPED and requests.take()[0] is Reason.CANCEL:
            job.finish(Status.CANCELLED)
        elif attempt.ending is Ending.STOPPED:
            error = KeyboardInterrupt(f"{job.name} was interrupted after {job.seconds:.1f} s{self._what_is_left()}")
            front_end.current.shorten(error)
            job.finish(Status.INTERRUPTED, error=error)
        else:
            states = [job.ranks[rank] for rank in members]
            stacks = [attempt.stacks[rank] for rank in members]
            raised = failure.error(states, stacks, oom_killed=attempt.oom_killed, world_size=self.size)
            raised.args = (f"{raised}{self._what_is_lost()}",)
            job.finish(Status.FAILED, error=raised)

    def _what_is_left(self) -> str:
        return self._what_is_lost() or "; the ranks and their names live on"

    def _what_is_lost(self) -> str:
        """What is to be said of ranks that can't go on, if there are any."""
        if self._group.busy:
            return (
                f"\n\nRanks {spans(self._group.busy)} do not react to being stopped: they may be in C code. Once they "
                "have come to its end they can be used again. `%accelerate restart` ends them now"
                f"{self.names_lost(self._group.busy)}."
            )
        if self._group.exited:
            return (
                f"\n\nRank {spans(self._group.exited)} is gone. `%accelerate restart` starts the ranks anew"
                f"{self.names_lost()}."
            )
        return ""

    def names_lost(self, ranks: Collection[int] | None = None) -> str:
        """Which names go with some ranks, or with all of them, as the end of a sentence."""
        ranks = self.members if ranks is None else ranks
        names = list(dict.fromkeys(name for rank in ranks for name in reversed(self.variables.known[rank].own())))
        if not names:
            return ""
        shown = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
        return f"; these names are lost then: {shown}"

    # Between two calls

    def get_ready(self, members: Collection[int]) -> None:
        """Sees that a cell can run on ranks; mends their process group if it was torn.

        Raises:
            LaunchError: It can't run there.
        """
        if self.running is not None:
            raise LaunchError(
                f"{self.running.name} still runs on these ranks: wait for it (its job has wait()), or end it by "
                "`%accelerate interrupt`"
            )
        if not self.lost:
            try:
                self._group.catch_up()
            except LaunchError as error:
                self.lost = str(error)
        if self.lost:
            raise LaunchError(f"the ranks are gone: {self.lost}\nNext: `%accelerate restart`.")
        for rank, how in self.dead.items():
            if rank in members:
                others = spans(set(self.members) - self.dead.keys())
                rescue = f" (`%%accelerate --ranks {others}` still runs on the others)" if others else ""
                raise LaunchError(f"rank {rank} {how}: `%accelerate restart` starts the ranks anew{rescue}.")
        if self._group.busy & set(members):
            raise LaunchError(
                f"ranks {spans(self._group.busy)} are still busy with a cell that was stopped: try again later, or "
                f"`%accelerate restart` ends them{self.names_lost(self._group.busy)}."
            )
        if self._is_suspect and not self.dead and not self._group.busy:
            self._mend()

    def _mend(self) -> None:
        """Has the ranks join a new process group if they can't meet in the old one any more; makes models equal."""
        found = self.ask(worker.health)
        if any(health.severed for health in found) or len({health.operations for health in found}) > 1:
            self._generation += 1
            self.ask(worker.renew, self._generation)
        notice = self.ask(worker.make_equal)[0]
        if notice:
            front_end.current.notice(notice)
        self._is_suspect = False

    def news(self) -> mirror.State | None:
        """What the ranks are to mirror anew: the folder or the paths of the notebook have changed."""
        now = mirror.capture_paths()
        before = self._mirrored
        if (now.cwd, now.path, now.argv) == (before.cwd, before.path, before.argv):
            return None
        self._mirrored = now
        return now

    def signal(self, rank: int, signum: int) -> None:
        """Sends a signal to a rank."""
        self._group.ranks.signal(rank, signum)

    def stop(self) -> None:
        """Ends the ranks, those that are free as a program ends, and a cell that they run in the background."""
        job = self.running
        if job is not None and job.cancel():
            job.cancel()  # a second time: nobody waits for the ranks any more
            job.wait()
        self._group.stop()

    def push(self, names: Mapping[str, str]) -> None:
        """Sends variables of the notebook to all ranks, whatever they have.

        Raises:
            PayloadError: One of them can't be sent.
        """
        packed, sent = self.variables.pack((worker.receive, (), {}), names, self.members, anew=True)
        self._ask(packed, self.members, "push")
        for rank in self.members:
            self.variables.took(sent, rank)

    def describe(self) -> list[RankRow]:
        """What is to be said of each rank."""
        rows = []
        for rank in self.members:
            row = RankRow(rank, "idle")
            for event in self._group.known(rank):
                if isinstance(event, Hello):
                    row.pid = event.pid
                elif isinstance(event, Heartbeat):
                    row.resident = event.resident
            if rank in self.dead:
                row.state = self.dead[rank]
            elif rank in self._group.busy:
                row.state = "busy"
            rows.append(row)
        return rows
