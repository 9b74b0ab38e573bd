"""The start methods: for each, what the fork server imports before it serves, and what its forks become."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from notebook_accel.launch.rank import main as rank_main
from notebook_accel.launch.rank.main import RankStart
from notebook_accel.launch.tpu import supervisor
from notebook_accel.launch.wire.stream import Channel

_MODULES = ("torch", "torch.distributed", "numpy", "cloudpickle", "tqdm", "threadpoolctl", "psutil")


@dataclass(frozen=True)
class StartMethod:
    """How ranks, or the supervisor of TPU ranks, are started."""

    modules: Sequence[str]
    """What the server imports before it serves."""
    run_forked: Callable[[RankStart, int], object]
    """Runs in a fork that was made for a launch."""
    wait_for_launch: Callable[[Channel, int], object]
    """Runs in a warm fork, which waits for a launch."""
    warm_at_start: int
    """The number of warm forks before the first launch."""


START_METHODS: Mapping[str, StartMethod] = {
    "fork": StartMethod(_MODULES, rank_main.run_forked, rank_main.wait_for_launch, 2),
    "xla": StartMethod((*_MODULES, *supervisor.MODULES), supervisor.run_forked, supervisor.wait_for_launch, 1),
    # A fresh interpreter inherits nothing, and nothing is forked.
    "spawn": StartMethod((), rank_main.run_forked, rank_main.wait_for_launch, 0),
}
