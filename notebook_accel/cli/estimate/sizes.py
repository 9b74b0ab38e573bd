"""Estimates the memory that training takes on each GPU, from the sizes of a model.

Bytes for each parameter, as Rajbhandari et al. count them ("ZeRO", 2020, section 3.1), for what `Accelerator` does:
parameters, gradients and optimizer states are float32; in 16 bits each forward also keeps a copy of the weights.

    weights      4       and 2 for the copy, under bf16 or fp16
    gradients    4       and 4 for DDP's buckets on several ranks
    optimizer    8       Adam's two moments; 4 for SGD with momentum; 0 without

FSDP over N ranks divides them by N, and holds two unsharded layers at a time (the one that computes and the next) with
the gradients of one. Activations are the tensors that autograd keeps from a forward pass, measured on the meta device.
A GPU also holds the CUDA context and the libraries' work space, and loses some memory to fragmentation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

GIB = 2**30
OPTIMIZERS = {"adam": 8, "momentum": 4, "sgd": 0}
"""Bytes of state for each parameter that is trained."""
OVERHEAD = int(0.7 * GIB)
"""Bytes of the CUDA context and libraries."""
USABLE = 0.95
"""The fraction of a GPU's memory that fragmentation leaves usable."""
GPUS = {
    "T4": 15, "RTX 3090": 24, "RTX 4090": 24, "L4": 22, "A10": 22, "V100 32GB": 32, "L40S": 45, "A100 40GB": 40,
    "A100 80GB": 80, "H100": 80, "H200": 140, "B200": 179,
}  # fmt: skip
"""The memory that a GPU reports, in GiB."""


@dataclass(frozen=True)
class Model:
    """The sizes of a model."""

    name: str
    parameters: int
    trained: int
    """How many of them get gradients."""
    buffers: int
    """Bytes."""
    largest_layer: int
    """Parameters of the largest layer that FSDP would gather at once."""
    activations: dict[str, int] | None
    """Bytes that autograd keeps from a forward pass, by precision; `None` if no input is known."""


@dataclass(frozen=True)
class Estimate:
    """The bytes on one GPU for one way of training."""

    strategy: str
    ranks: int
    precision: str
    weights: int
    gradients: int
    optimizer: int
    activations: int | None

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer + (self.activations or 0) + OVERHEAD

    def fits(self, capacity: float) -> bool:
        """Whether it fits a GPU with this many bytes."""
        return self.total <= capacity * USABLE


def estimate(model: Model, strategy: str, ranks: int, precision: str, optimizer: str) -> Estimate:
    """The memory of each GPU under `single`, `ddp` or `fsdp`."""
    half = precision != "no"
    weights = 4 * model.parameters
    gradients = 4 * model.trained
    states = OPTIMIZERS[optimizer] * model.trained
    if strategy == "fsdp":
        layer = (2 if half else 4) * model.largest_layer
        weights, gradients, states = weights // ranks + 2 * layer, gradients // ranks + layer, states // ranks
    else:
        weights += 2 * model.parameters if half else 0
        gradients *= 2 if strategy == "ddp" else 1
    activations = None if model.activations is None else model.activations[precision]
    return Estimate(strategy, ranks, precision, weights + model.buffers, gradients, states, activations)


def table(model: Model, ranks: int, optimizer: str) -> list[Estimate]:
    """All ways of training, on one GPU and on several."""
    ways: list[tuple[str, int]] = [("single", 1)]
    if ranks > 1:
        ways += [("ddp", ranks), ("fsdp", ranks)]
    return [
        estimate(model, strategy, count, precision, optimizer)
        for strategy, count in ways
        for precision in ("no", "bf16")
    ]


def fitting(found: Estimate, gpus: Sequence[tuple[str, float]]) -> list[str]:
    """The names of the GPUs that it fits."""
    return [name for name, capacity in gpus if found.fits(capacity)]
