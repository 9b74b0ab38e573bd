"""Plans the next attempt of a launch with the ranks that are left, after GPUs, memory or machines have gone.

A rank is left out of the next attempt if

- its GPU is no longer there, or refused it;
- the system killed it for lack of memory;
- it failed by itself before its first step, in this attempt and in the one before;
- its machine, one of a cluster, was lost or shuts down. Each machine has equally many ranks, so others may go with it.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import replace

from notebook_accel import hardware
from notebook_accel.config import LaunchConfig
from notebook_accel.errors import HardwareError
from notebook_accel.hardware import Hardware
from notebook_accel.launch.engines.contract import Engine, NodeRequest
from notebook_accel.launch.job.job_state import JobState
from notebook_accel.launch.job.rank_state import RankState
from notebook_accel.launch.plan import plan
from notebook_accel.launch.plan.plan import Plan

_GPU_REFUSES = (
    "busy or unavailable",
    "uncorrectable ECC error",
    "no CUDA-capable device is detected",
    "no ROCm-capable device is detected",
    "No CUDA GPUs are available",
    "No HIP GPUs are available",
    "invalid device ordinal",
    "GPU is lost",
    "GPU has fallen off the bus",
    "hardware stack error",
)
"""What CUDA and ROCm say of a GPU that can't be used. Other errors come from the program."""


class Remaining:
    """The ranks that are left of a launch, from attempt to attempt.

    Args:
        planned: The plan of the first attempt.
        engine: Starts the ranks.
        environ: The environment in which the hardware was detected.
    """

    def __init__(self, planned: Plan, engine: Engine, environ: Mapping[str, str]) -> None:
        assert planned.config.min_processes is not None
        self._first = planned
        self._least = planned.config.min_processes
        self._engine = engine
        self._environ = environ
        self._slots = list(range(planned.size))
        """The ranks of the first attempt that are left, by their numbers there."""
        self._current = self._slots
        """The slot of each rank of the last attempt, which has none for GPUs that are gone for now."""
        self._uuids = _uuids(planned.config, planned.size, hardware.detect(environ)) if planned.device == "cuda" else ()
        """The GPU of each rank of the first attempt."""
        self._failed_at_start: set[int] = set()
        """The slots that failed by themselves in the last attempt, before its first step."""
        self._lost_hosts: tuple[str, ...] = ()

    def plan_after(self, job: JobState, *, oom_killed: bool) -> Plan:
        """The plan of the next attempt.

        Args:
            job: The state at the end of an attempt that has failed.
            oom_killed: Whether the system killed a process for lack of memory in the meantime.

        Raises:
            HardwareError: Fewer ranks are left than `min_processes`.
        """
        if self._first.node_request is not None:
            return self._on_nodes(job)
        self._leave_out(job, oom_killed)
        return self._make_here()

    # On this machine

    def _leave_out(self, job: JobState, oom_killed: bool) -> None:
        by_themselves = {index for index, state in enumerate(job.ranks) if _failed_by_itself(state)}
        gone = {index for index in by_themselves if _gpu_refused(job.ranks[index])}
        if oom_killed:
            gone |= {index for index in by_themselves if _was_killed(job.ranks[index])}
        at_start = {self._current[index] for index in by_themselves if job.step in (None, job.began)}
        # If all ranks fail in the same way, it is the program, not what one of them runs on.
        again = set() if len(by_themselves) == len(self._current) else at_start & self._failed_at_start
        self._failed_at_start = at_start
        left_out = {self._current[index] for index in gone} | again
        self._slots = [slot for slot in self._slots if slot not in left_out]

    def _make_here(self) -> Plan:
        config, found = self._first.config, hardware.detect(self._environ)
        gpus, slots = None, self._slots
        if self._first.device == "cuda":
            there = {gpu.uuid: index for index, gpu in enumerate(found.gpus)}
            used = {slot: there[self._uuids[slot]] for slot in slots if self._uuids[slot] in there}
            gpus = _in_turn(list(used.values()))
            slots = _by_gpu(used, gpus)
        self._current = slots
        size = len(slots)
        self._check(size)
        return plan.make(replace(config, gpus=gpus, num_processes=size), found, self._engine)

    def _check(self, size: int) -> None:
        if size < self._least:
            left = f"only {size} of {self._first.size} ranks can start" if size else "no rank can start"
            raise HardwareError(f"{left}, which is fewer than min_processes={self._least}")

    # On a cluster

    def _on_nodes(self, job: JobState) -> Plan:
        lost = {state.host for state in job.ranks if state.host and (state.is_lost or state.node_leaving)}
        self._lost_hosts = tuple(dict.fromkeys((*self._lost_hosts, *sorted(lost))))
        assert self._first.node_request is not None
        request = replace(self._first.node_request, excluded=self._lost_hosts)
        count = min(request.count, _fitting(request, self._engine))
        size = count * self._first.local_size
        self._check(size)
        config = replace(self._first.config, num_nodes=count, num_processes=size)
        return replace(self._first, config=config, size=size, node_request=replace(request, count=count))


def without_leaving(planned: Plan, job: JobState, engine: Engine) -> Plan:
    """The plan of the next attempt with as many ranks, on other machines of a cluster than those that shut down.

    Args:
        planned: The plan of the attempt that they have ended.
        job: The state at its end.
        engine: Starts the ranks.

    Raises:
        HardwareError: Too few machines are left.
    """
    assert planned.node_request is not None
    leaving = (state.host for state in job.ranks if state.host and state.node_leaving)
    request = replace(planned.node_request, excluded=tuple(dict.fromkeys((*planned.node_request.excluded, *leaving))))
    left = _fitting(request, engine)
    if left < request.count:
        raise HardwareError(
            f"without {', '.join(request.excluded)}, the cluster has {left} of the {request.count} machines that a "
            "restart with all ranks needs (min_processes would allow fewer)"
        )
    return replace(planned, node_request=request)


def _fitting(request: NodeRequest, engine: Engine) -> int:
    """How many nodes can be used."""
    # Not of a survey of a moment ago, which would still have those that are gone.
    return sum(request.fits(node) for node in engine.nodes(2**31) or [])


def describe_change(before: Plan, after: Plan) -> str:
    """`with 3 of 4 ranks`, for messages; empty if the number of ranks stays."""
    return "" if after.size == before.size else f" with {after.size} of {before.size} ranks"


def _failed_by_itself(state: RankState) -> bool:
    """Whether a rank is a cause of the failure, rather than ended because of another."""
    if state.failed is not None:
        return not state.failed.from_peer and not state.stopped
    return state.exited is not None and state.returned is None and not state.stopped


def _was_killed(state: RankState) -> bool:
    return state.exited is not None and state.exited.signal == signal.SIGKILL


def _gpu_refused(state: RankState) -> bool:
    return state.failed is not None and any(
        words in raised.text for raised in state.failed.chain for words in _GPU_REFUSES
    )


def _uuids(config: LaunchConfig, size: int, found: Hardware) -> tuple[str, ...]:
    return tuple(found.gpus[index].uuid for index in config.gpus or range(size))


def _by_gpu(gpus: Mapping[int, int], order: tuple[int, ...]) -> list[int]:
    """Orders the slots so that, as far as possible, each rank gets a slot on its own GPU.

    Args:
        gpus: The GPU of each slot.
        order: The GPU of each rank.
    """
    left = list(gpus)
    found = []
    for gpu in order:
        found.append(next((slot for slot in left if gpus[slot] == gpu), left[0]))
        left.remove(found[-1])
    return found


def _in_turn(gpus: list[int]) -> tuple[int, ...]:
    """The GPU of each rank, in the order in which ranks share GPUs: in turn."""
    distinct = list(dict.fromkeys(gpus))
    return tuple(distinct[index % len(distinct)] for index in range(len(gpus)))
