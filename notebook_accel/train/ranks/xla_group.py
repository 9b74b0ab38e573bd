"""torch_xla for a rank: its device and number, collectives, moving data to the device, and running the pending graph.

XLA tensors are lazy: operations are recorded in a graph, and `sync` compiles it (once for each shape of graph) and runs
it. Imported only where a launch has chosen a TPU, so torch_xla is optional.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
from torch import nn
from torch.optim import Optimizer
from torch_xla.distributed.parallel_loader import ParallelLoader

from notebook_accel.train.ranks.communicator import Communicator

AXIS = "data"
"""The one axis of the mesh of SPMD."""


def device() -> torch.device:
    """This rank's device."""
    found: torch.device = torch_xla.device()
    return found


def numbers() -> tuple[int, int, int, int]:
    """The rank and local rank, and how many there are. Not those of `torch.distributed`, since ranks may be threads."""
    if xr.is_spmd():
        return 0, 0, 1, 1
    return xr.global_ordinal(), xr.local_ordinal(), xr.world_size(), xr.local_device_count()


def sync() -> None:
    """Compiles and runs the operations that have been recorded so far."""
    torch_xla.sync()


class XlaBackend(Communicator):
    """Collectives between the devices; bytes go through torch_xla's rendezvous."""

    compares_shapes = False

    def gather(self, tensor: torch.Tensor, group: Any = None) -> torch.Tensor:
        gathered: torch.Tensor = xm.all_gather(_on_device(tensor), dim=0)
        return gathered.to(tensor.device)

    def reduce(self, tensor: torch.Tensor, maximum: bool, group: Any = None) -> torch.Tensor:
        kind = xm.REDUCE_MAX if maximum else xm.REDUCE_SUM
        reduced: torch.Tensor = xm.all_reduce(kind, _on_device(tensor))
        return reduced.to(tensor.device)

    def broadcast(self, tensor: torch.Tensor, source: int) -> torch.Tensor:
        own = _on_device(tensor)
        # A sum of one tensor and zeros. Multiplying by 0 would not do: NaN stays NaN.
        sent = own if xr.global_ordinal() == source else torch.zeros_like(own)
        return self.reduce(sent.to(torch.uint8) if sent.dtype == torch.bool else sent, False).to(tensor)

    def all_gather_bytes(self, data: bytes, group: Any = None) -> list[bytes]:
        shared: list[bytes] = xm.xla_rendezvous(data)
        return shared

    def barrier(self) -> None:
        xm.xla_rendezvous(b"")


def _on_device(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to(torch_xla.device())


def average(gradients: Sequence[torch.Tensor]) -> None:
    """Replaces gradients by their mean over all ranks."""
    if gradients and xr.world_size() > 1:
        xm.all_reduce(xm.REDUCE_SUM, list(gradients), scale=1.0 / xr.world_size())


def move(model: nn.Module, optimizers: Sequence[Optimizer]) -> None:
    """Moves a model to this rank's device, and points the optimizers to its new parameters.

    A parameter cannot change to an XLA tensor in place: each is replaced, also one that two layers share, by two.
    """
    before = dict(model.named_parameters(remove_duplicate=False))
    model.to(torch_xla.device())
    new: dict[int, nn.Parameter] = {}
    for name, parameter in before.items():
        owner, _, own = name.rpartition(".")
        module = model.get_submodule(owner)
        first = new.setdefault(id(parameter), module._parameters[own])  # type: ignore[arg-type]  # no parameter is `None`
        module._parameters[own] = first
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["params"] = [new.get(id(parameter), parameter) for parameter in group["params"]]
        moved = {new.get(id(parameter), parameter): state for parameter, state in optimizer.state.items()}
        optimizer.state.clear()
        optimizer.state.update(moved)
        if moved:
            optimizer.load_state_dict(optimizer.state_dict())  # moves the state beside the parameters


def on_host(value: Any) -> Any:
    """The tree with its XLA tensors in the host's memory."""
    sync()  # once, rather than for each of them
    return xm._maybe_convert_to_cpu(value)


def uploaded(batches: Iterable[Any], device: torch.device) -> Iterator[Any]:
    """Yields batches on the device, sent there by threads; at each batch, the loop's recorded operations are run.

    With SPMD each batch is spread over the devices, along its first dimension.
    """
    source = _Source(batches)
    loader = ParallelLoader(source, [device], input_sharding=_Spread() if xr.is_spmd() else None)
    try:
        yield from loader.per_device_loader(device)
    finally:
        loader.close()
    if source.error is not None:
        raise source.error


class _Source:
    """Stores an error in reading: torch_xla's loader thread would drop it, and the epoch would end early."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = batches
        self.error: BaseException | None = None

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from self._batches
        except Exception as error:
            self.error = error


class _Spread:
    """Shards tensors of any rank along their first dimension; one that does not divide evenly is replicated."""

    minibatch = False  # there is one process: a batch is the whole of it

    def __init__(self) -> None:
        self._mesh = mesh()

    def xla_spec(self, tensor: torch.Tensor) -> Any:
        from torch_xla.distributed.spmd import ShardingSpec

        if not tensor.dim() or tensor.shape[0] % self._mesh.size():
            return None
        return ShardingSpec(self._mesh, (AXIS, *[None] * (tensor.dim() - 1))).xla_spec(tensor)


def mesh() -> Any:
    """All devices, in a row."""
    from torch_xla.distributed.spmd import Mesh

    count = xr.global_runtime_device_count()
    return Mesh(list(range(count)), (count,), (AXIS,))


def seed(number: int) -> None:
    """Seeds this rank's device."""
    xm.set_rng_state(number)


def random_state() -> int:
    """The state of the random generator of this rank's device."""
    return int(xm.get_rng_state())
