"""Which ranks get the same samples, and which get different ones: one rule, by the dimensions of their mesh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

_SAME_RESULTS = ("tp", "pp")
"""Dimensions of a mesh along which ranks compute one result together, of the same samples."""
_SAME_SAMPLES = (*_SAME_RESULTS, "cp", "sp")
"""These, and the dimensions along which ranks have different parts of the same sequences."""
_JOINT = {
    ("dp_replicate", "dp_shard"): "dp",
    ("dp_replicate", "dp_shard", "cp"): "dp_cp",
    ("dp_shard", "cp"): "dp_shard_cp",
}
"""The names under which the mesh of a `ParallelismConfig` combines dimensions."""


@dataclass(frozen=True)
class Ranks:
    """Some of the ranks, of which this is one."""

    rank: int
    """This rank's number among them."""
    size: int
    """How many they are."""
    group: Any = None
    """Their process group; `None` for all ranks, or for this one alone."""

    def __deepcopy__(self, _: Any) -> Ranks:
        return self  # a process group can't be copied

    def __reduce__(self) -> tuple[Any, ...]:
        return Ranks, (self.rank, self.size)  # of another launch, whose ranks refuse what was prepared here


ALONE = Ranks(0, 1)


@dataclass(frozen=True)
class SampleSharing:
    """How the ranks share the samples. Loaders, collectives and random states all follow it."""

    data: Ranks
    """The ranks that get different samples: this one, and one for each other share of them."""
    peers: Ranks
    """The ranks that get the same samples as this one, and have to draw the same random numbers."""
    results: Ranks
    """The ranks that compute different results: `data`, and those that have other parts of the same sequences."""
    shares: tuple[int, ...]
    """For each rank, the number of the share that it gets."""

    @classmethod
    def of(cls, mesh: DeviceMesh | None, rank: int, size: int) -> SampleSharing:
        """How ranks share samples on a mesh of all ranks; without one, each of `size` ranks gets different samples.

        All ranks call it.
        """
        names = () if mesh is None else mesh.mesh_dim_names or ()
        if mesh is None or not names:
            different = Ranks(rank, size)
            return cls(different, ALONE, different, tuple(range(size)))
        same = [name for name in names if name in _SAME_SAMPLES]
        different_names = [name for name in names if name not in _SAME_SAMPLES]
        data = _along(mesh, different_names)
        order = [names.index(name) for name in (*different_names, *same)]
        readers = mesh.mesh.permute(order).reshape(data.size, -1).tolist()
        share_of = {reader: share for share, row in enumerate(readers) for reader in row}
        return cls(
            data,
            _along(mesh, same),
            _along(mesh, [name for name in names if name not in _SAME_RESULTS]),
            tuple(share_of[each] for each in sorted(share_of)),
        )


def _along(mesh: DeviceMesh, names: Sequence[str]) -> Ranks:
    """The ranks along some dimensions, in the order of the mesh."""
    sizes = dict(zip(mesh.mesh_dim_names or (), mesh.shape, strict=True))
    longer = tuple(name for name in names if sizes[name] > 1)
    rank, size = 0, 1
    for name in longer:
        rank, size = rank * sizes[name] + mesh.get_local_rank(name), size * sizes[name]
    if size in (1, dist.get_world_size()):
        return Ranks(rank, size)
    if len(longer) == 1:
        return Ranks(rank, size, mesh.get_group(longer[0]))
    return Ranks(rank, size, mesh[longer]._flatten(_JOINT.get(longer)).get_group())


NOT_SHARED = SampleSharing.of(None, 0, 1)
"""For a rank that reads all samples."""
