"""The dimensions in which ranks work together, with Accelerate's names, and the device mesh that follows from them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from notebook_accel import rank_local
from notebook_accel.errors import ConfigurationError
from notebook_accel.train.options.option_class import option_class

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor.parallel import ParallelStyle

_ORDER = ("dp_replicate", "dp_shard", "cp", "tp")
"""The dimensions from the outermost: neighboring ranks share layers."""
JOINT = {
    ("dp_replicate", "dp_shard"): "dp",
    ("dp_shard", "cp"): "dp_shard_cp",
    ("dp_replicate", "dp_shard", "cp"): "dp_cp",
}
"""The names under which a mesh also has several of them together."""
_PREFIX = "PARALLELISM_CONFIG"
_MESHES = f"{__name__}.meshes"


def device_mesh(device_type: str, sizes: Mapping[str, int]) -> DeviceMesh:
    """The mesh of all ranks with these dimensions: the same one each time, since torch never frees a mesh's groups.

    Otherwise, each `Accelerator` on persistent ranks would leave groups behind, with their threads and connections.
    All ranks call it.
    """
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    meshes: dict[Any, tuple[Any, DeviceMesh]] = rank_local.space().setdefault(_MESHES, {})
    key = (device_type, *sizes.items())
    world, mesh = meshes.get(key, (None, None))
    if mesh is None or world is not dist.group.WORLD:  # the ranks have joined again since
        mesh = init_device_mesh(device_type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))
        meshes[key] = dist.group.WORLD, mesh
    return mesh


@option_class("parallelism_config=ParallelismConfig(tp_handler={})")
@dataclass
class TorchTensorParallelConfig:
    """How layers are split over the ranks of the dimension `tp`."""

    enable_async_tp: bool = False
    """Must be `False`; Accelerate ignores it."""
    plan: Mapping[str, ParallelStyle | str] | None = None
    """How to split each submodule, by name or pattern: a `ParallelStyle` of torch, or its name in transformers' plans,
    such as `colwise`. `None`: the model's own `_tp_plan`. Accelerate has no such field."""

    def __post_init__(self) -> None:
        if self.enable_async_tp:
            raise ConfigurationError("enable_async_tp=True would have no effect: leave it out")


@option_class("parallelism_config=ParallelismConfig(cp_handler={})")
@dataclass
class TorchContextParallelConfig:
    """How ranks of the dimension `cp` exchange keys and values."""

    cp_comm_strategy: str | None = None
    """`allgather` or `alltoall`; `None`: what `PARALLELISM_CONFIG_CP_COMM_STRATEGY` says, or `allgather`."""

    def __post_init__(self) -> None:
        chosen = self.cp_comm_strategy or os.environ.get(f"{_PREFIX}_CP_COMM_STRATEGY", "allgather")
        if chosen not in ("allgather", "alltoall"):
            raise ConfigurationError(f"cp_comm_strategy={chosen!r} must be allgather or alltoall")
        self.cp_comm_strategy = chosen


@option_class("parallelism_config={}")
@dataclass
class ParallelismConfig:
    """How many ranks work together in each dimension. The product of the sizes is the number of ranks.

    A size that is left out comes from the environment (`PARALLELISM_CONFIG_TP_SIZE` and so on), and is otherwise 1. If
    all sizes are 1, every rank has a replica.

    Raises:
        ConfigurationError: A size or a handler is not valid, or would have no effect.
    """

    dp_replicate_size: int | None = None
    """How many replicas of the model there are, each on the ranks of the other dimensions."""
    dp_shard_size: int | None = None
    """Over how many ranks FSDP2 shards parameters, gradients and optimizer states."""
    tp_size: int | None = None
    """How many ranks share each layer of the plan (tensor parallel); they get the same samples."""
    cp_size: int | None = None
    """How many ranks share each sequence (context parallel); they get the same samples."""
    cp_backend: str | None = None
    """Must be `torch`."""
    sp_size: int | None = None
    """Must be 1: Accelerate's sequence parallelism is DeepSpeed's."""
    sp_backend: str | None = None
    tp_handler: TorchTensorParallelConfig | None = None
    cp_handler: TorchContextParallelConfig | None = None
    sp_handler: Any = None

    device_mesh: ClassVar[DeviceMesh | None] = None

    def __post_init__(self) -> None:
        self.dp_replicate_size = _size("dp_replicate_size", self.dp_replicate_size)
        self.dp_shard_size = _size("dp_shard_size", self.dp_shard_size)
        self.tp_size = _size("tp_size", self.tp_size)
        self.cp_size = _size("cp_size", self.cp_size)
        self.sp_size = _size("sp_size", self.sp_size)
        self.cp_backend = self.cp_backend or os.environ.get(f"{_PREFIX}_CP_BACKEND", "torch")
        self.sp_backend = self.sp_backend or os.environ.get(f"{_PREFIX}_SP_BACKEND", "deepspeed")
        if self.sp_size > 1 or self.sp_handler is not None:
            raise ConfigurationError(
                "sequence parallelism (sp_size, sp_handler) needs DeepSpeed, which is not supported: use cp_size, "
                "which shares sequences with torch's own context parallelism"
            )
        if self.cp_backend != "torch":
            raise ConfigurationError(f"cp_backend={self.cp_backend!r} must be torch")
        for name, handler in (("tp", self.tp_handler), ("cp", self.cp_handler)):
            if handler is not None and self._sizes[name] == 1:
                raise ConfigurationError(f"{name}_handler has no effect with {name}_size=1: leave it out")
        if self.tp_enabled and self.tp_handler is None:
            self.tp_handler = TorchTensorParallelConfig()
        if self.cp_enabled and self.cp_handler is None:
            self.cp_handler = TorchContextParallelConfig()

    @property
    def _sizes(self) -> dict[str, int]:
        sizes = self.dp_replicate_size, self.dp_shard_size, self.cp_size, self.tp_size
        return {name: size or 1 for name, size in zip(_ORDER, sizes, strict=True)}

    def _enabled(self, *names: str) -> list[str]:
        return [name for name in names if self._sizes[name] > 1]

    @property
    def total_size(self) -> int:
        """The number of ranks."""
        return self.data_parallel_size * self.non_data_parallel_size

    @property
    def data_parallel_size(self) -> int:
        """The number of ranks that get different samples."""
        return self._sizes["dp_replicate"] * self._sizes["dp_shard"]

    @property
    def non_data_parallel_size(self) -> int:
        """The number of ranks that get the same samples."""
        return self._sizes["tp"] * self._sizes["cp"]

    @property
    def dp_replicate_enabled(self) -> bool:
        """Whether groups of ranks have replicas of the model."""
        return bool(self._enabled("dp_replicate"))

    @property
    def dp_shard_enabled(self) -> bool:
        """Whether ranks share the parameters of the model."""
        return bool(self._enabled("dp_shard"))

    @property
    def tp_enabled(self) -> bool:
        """Whether ranks share layers."""
        return bool(self._enabled("tp"))

    @property
    def cp_enabled(self) -> bool:
        """Whether ranks share sequences."""
        return bool(self._enabled("cp"))

    @property
    def sp_enabled(self) -> bool:
        """Always `False`."""
        return False

    @property
    def dp_dim_names(self) -> list[str]:
        """The dimensions along which ranks get different samples."""
        return self._enabled("dp_replicate", "dp_shard")

    @property
    def non_dp_dim_names(self) -> list[str]:
        """The dimensions along which ranks get the same samples."""
        return self._enabled("tp", "cp")

    @property
    def dp_shard_cp_dim_names(self) -> list[str]:
        """The dimensions over which FSDP2 shards; the mesh has them together as `dp_shard_cp`."""
        return self._enabled("dp_shard", "cp")

    @property
    def dp_cp_dim_names(self) -> list[str]:
        """The dimensions over which the loss is averaged; the mesh has them together as `dp_cp`."""
        return self._enabled("dp_replicate", "dp_shard", "cp")

    @property
    def fsdp_dim_names(self) -> list[str]:
        """The dimensions of FSDP2's mesh."""
        return [*self._enabled("dp_replicate"), "dp_shard_cp"]

    @property
    def active_mesh_dims(self) -> list[str]:
        """The dimensions of more than one rank."""
        return self.dp_dim_names + self.non_dp_dim_names

    def fill(self, ranks: int) -> None:
        """Makes a configuration of size 1 one of replicas on all ranks."""
        if self.total_size == 1:
            self.dp_replicate_size = ranks

    def fit(self, ranks: int, *, has_fsdp_plugin: bool) -> None:
        """Fills the sizes, and checks them against the ranks of a launch.

        Raises:
            ConfigurationError: They do not fit, or the FSDP plugin would have no effect.
        """
        self.fill(ranks)
        if self.total_size != ranks:
            sizes = " × ".join(f"{name}_size={size}" for name, size in self._sizes.items())
            raise ConfigurationError(
                f"the ParallelismConfig is for {self.total_size} ranks ({sizes}), but there are {ranks}: launch "
                f"{self.total_size}, or change the sizes"
            )
        if has_fsdp_plugin and not self.dp_shard_cp_dim_names and ranks > 1:
            raise ConfigurationError(
                "the FSDP plugin has nothing to shard over, since dp_shard_size and cp_size are 1: leave it out, or "
                "set dp_shard_size"
            )

    def build_device_mesh(self, device_type: str) -> DeviceMesh | None:
        """The mesh of these dimensions, and of `dp`, `dp_shard_cp` and `dp_cp`, which combine some; `None` on one rank.

        All ranks call it.
        """
        # FSDP2 synchronizes replicas only if it also has a dimension to shard over, so a dimension of size 1 is added.
        needs_shard = self.dp_replicate_enabled and self.tp_enabled
        names = [name for name in _ORDER if self._sizes[name] > 1 or (name == "dp_shard" and needs_shard)]
        if not names:
            return None
        mesh = device_mesh(device_type, {name: self._sizes[name] for name in names})
        for parts, name in JOINT.items():
            if found := tuple(part for part in parts if part in names):
                mesh[found]._flatten(name)
        return mesh

    def get_device_mesh(self, device_type: str | None = None) -> DeviceMesh | None:
        """The mesh, which the first call builds.

        Raises:
            ConfigurationError: There is none yet, and no device type is given; or it is one of other devices.
        """
        mesh: DeviceMesh | None = self.device_mesh
        if mesh is None:
            if device_type is None:
                raise ConfigurationError("there is no mesh yet: give the type of device, as in get_device_mesh('cuda')")
            mesh = self.__dict__["device_mesh"] = self.build_device_mesh(device_type)
        elif device_type not in (None, mesh.device_type):
            raise ConfigurationError(f"the mesh is one of {mesh.device_type}, not of {device_type}")
        return mesh


def _size(name: str, given: int | None) -> int:
    variable = f"{_PREFIX}_{name.upper()}"
    text = os.environ.get(variable, "1") if given is None else given
    try:
        size = int(text)
    except ValueError:
        size = 0
    if size < 1:
        source = name if given is not None else variable
        raise ConfigurationError(f"{source}={text}: must be a whole number of ranks, at least 1")
    return size
