"""The mesh of the ranks: in which dimensions they work together, and, as follows from it, how they share samples.

fsdp_plugin, torch_tp_plugin, parallelism_config ─▶ Mesh ─▶ strategy
└───▶ SampleSharing ─▶ loaders, collectives, random states
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.options.enums import DistributedType
from notebook_accel.train.options.fsdp import FullyShardedDataParallelPlugin
from notebook_accel.train.options.parallelism import (
    JOINT,
    ParallelismConfig,
    TorchContextParallelConfig,
    TorchTensorParallelConfig,
    device_mesh,
)
from notebook_accel.train.options.plugins import TorchTensorParallelPlugin
from notebook_accel.train.ranks import process_group

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from notebook_accel.train.ranks.process_group import Membership

_SAME_RESULTS = ("tp", "pp")
"""Dimensions of a mesh along which ranks compute one result together, of the same samples."""
_SAME_SAMPLES = (*_SAME_RESULTS, "cp", "sp")
"""These, and the dimensions along which ranks have different parts of the same sequences."""


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
    return Ranks(rank, size, mesh[longer]._flatten(JOINT.get(longer)).get_group())


NOT_SHARED = SampleSharing.of(None, 0, 1)
"""For a rank that reads all samples."""


@dataclass(frozen=True, kw_only=True)
class Mesh:
    """The ranks in the dimensions that the options of an `Accelerator` name; by default none: all have replicas."""

    device_mesh: DeviceMesh | None = None
    """Torch's mesh of all ranks."""
    sharded_along: tuple[str, ...] = ()
    """The dimensions of FSDP2's mesh, replicas included; none if nothing is sharded."""
    layers: TorchTensorParallelConfig | None = None
    """How layers are split along the dimension `tp`; `None`: they are not."""
    sequences: TorchContextParallelConfig | None = None
    """How sequences are shared along the dimension `cp`; `None`: they are not."""
    distributed_type: DistributedType | None = None
    """How the ranks work together; `None`: as follows from their devices."""

    @property
    def names(self) -> tuple[str, ...]:
        """The dimensions, from the outermost."""
        return () if self.device_mesh is None else self.device_mesh.mesh_dim_names or ()

    @property
    def has_parts(self) -> bool:
        """Whether ranks have parts of a model or of sequences, as far as there are several, rather than replicas."""
        return any(name != "dp_replicate" for name in self.names)

    def rank_along(self, name: str) -> int:
        """This rank's number along a dimension; 0 if there is none of that name."""
        return 0 if self.device_mesh is None or name not in self.names else self.device_mesh.get_local_rank(name)

    @property
    def shards(self) -> DeviceMesh | None:
        """FSDP2's mesh; `None` if nothing is sharded."""
        return self.along(*self.sharded_along) if self.sharded_along else None

    def along(self, *names: str) -> DeviceMesh:
        """Torch's mesh of these dimensions, combined ones among them."""
        assert self.device_mesh is not None
        with warnings.catch_warnings():
            # torch would have us keep the combined meshes ourselves, but users look them up in the mesh by name.
            warnings.filterwarnings("ignore", "Slicing a flattened dim", UserWarning)
            return self.device_mesh[names]

    @classmethod
    def of(
        cls,
        membership: Membership,
        fsdp: FullyShardedDataParallelPlugin | None,
        tensor_parallel: TorchTensorParallelPlugin | None,
        config: ParallelismConfig | None,
    ) -> Mesh:
        """The mesh that the options of an `Accelerator` describe; all ranks call it.

        Raises:
            ConfigurationError: They contradict each other, or do not fit the ranks.
        """
        if config is not None:
            if tensor_parallel is not None:
                raise ConfigurationError(
                    "parallelism_config and torch_tp_plugin were both given: leave the plugin out, and pass its plan "
                    "in ParallelismConfig(tp_size=..., tp_handler=TorchTensorParallelConfig(plan=...))"
                )
            config.fit(membership.world_size, has_fsdp_plugin=fsdp is not None)
        if membership.backend == "xla":  # where torch has none of this
            return REPLICAS
        if tensor_parallel is not None:
            return cls._of_tensor_parallel(membership, tensor_parallel, fsdp)
        if config is not None and (config.total_size > 1 or fsdp is None):
            return cls._of_config(membership, config, fsdp)
        return REPLICAS if fsdp is None else cls._of_fsdp(membership, fsdp)

    @classmethod
    def _of_config(
        cls, membership: Membership, config: ParallelismConfig, fsdp: FullyShardedDataParallelPlugin | None
    ) -> Mesh:
        if fsdp is not None and fsdp.hybrid:
            raise ConfigurationError(
                "sharding_strategy='HYBRID_SHARD' contradicts parallelism_config, which says over how many ranks to "
                "shard: leave it out, and set dp_replicate_size and dp_shard_size"
            )
        found = config.get_device_mesh(membership.device.type)
        is_sharded = found is not None and not {"dp_shard", "cp"}.isdisjoint(found.mesh_dim_names or ())
        return cls(
            device_mesh=found,
            sharded_along=tuple(config.fsdp_dim_names) if is_sharded else (),
            layers=config.tp_handler,
            sequences=config.cp_handler,
            distributed_type=DistributedType.FSDP if is_sharded else None,
        )

    @classmethod
    def _of_fsdp(cls, membership: Membership, plugin: FullyShardedDataParallelPlugin) -> Mesh:
        process_group.require_group(membership.device)
        size, local_size = membership.world_size, membership.local_world_size
        sizes = {"replicate": size // local_size, "shard": local_size} if plugin.hybrid else {"shard": size}
        return cls(
            device_mesh=device_mesh(membership.device.type, sizes),
            sharded_along=tuple(sizes),
            distributed_type=DistributedType.FSDP,
        )

    @classmethod
    def _of_tensor_parallel(
        cls, membership: Membership, plugin: TorchTensorParallelPlugin, fsdp: FullyShardedDataParallelPlugin | None
    ) -> Mesh:
        size, tp_size, mesh = membership.world_size, plugin.tp_size, plugin.torch_device_mesh
        if not plugin.plan:
            raise ConfigurationError(
                "tensor parallel needs a plan: TorchTensorParallelPlugin(tp_size=2, plan={'layers.*.up': 'colwise', "
                "...}), by the names of the model's submodules"
            )
        if fsdp is not None:
            raise ConfigurationError(
                "fsdp_plugin has no effect with torch_tp_plugin: if there are more than tp_size ranks, FSDP2 is used "
                "anyway. Leave it out."
            )
        if size % tp_size:
            raise ConfigurationError(
                f"tp_size={tp_size} does not divide the {size} ranks: launch a multiple of it, or change it"
            )
        if mesh is None:
            process_group.require_group(membership.device)
            mesh = device_mesh(membership.device.type, {"dp": size // tp_size, "tp": tp_size})
        elif mesh.mesh_dim_names != ("dp", "tp") or mesh["tp"].size() != tp_size:
            raise ConfigurationError(
                f"torch_device_mesh must have the dimensions ('dp', 'tp'), the second of size tp_size={tp_size}; "
                f"it has {mesh.mesh_dim_names} of sizes {tuple(mesh.mesh.shape)}"
            )
        return cls(
            device_mesh=mesh,
            sharded_along=("dp",) if size > tp_size else (),
            layers=TorchTensorParallelConfig(plan=plugin.plan) if tp_size > 1 else None,
            distributed_type=DistributedType.TP,
        )


REPLICAS = Mesh()
"""Without dimensions."""
