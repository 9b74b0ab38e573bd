"""`notebook-accel estimate-memory`: estimates the memory that training a model takes, and which GPUs it fits.

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

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click

from notebook_accel import hardware
from notebook_accel.errors import ConfigurationError

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


_SHOWN = 3
"""The number of GPU types to list, smallest first."""
_STRATEGIES = {"single": "one GPU", "ddp": "DDP on {}", "fsdp": "FSDP on {}"}


def measure(name: str, arguments: dict[str, Any], given: tuple[str, ...], batch: int, sequence: int) -> Model:
    """Makes the model on the meta device, without storage, and measures its sizes."""
    from torch import nn

    from notebook_accel.train.models import meta

    model = meta.build(name, arguments)
    positional, named = meta.inputs(given), {}
    if not given and hasattr(model, "config") and isinstance(model, nn.Module):
        named = meta.token_inputs(model, batch, sequence)
    activations = None
    if positional or named:
        activations = {"no": meta.activations(model, positional, named)}
        with meta.in_half(model, positional) as halves:
            activations["bf16"] = meta.activations(model, halves, named)
    return Model(
        name=name,
        parameters=sum(each.numel() for each in model.parameters()),
        trained=sum(each.numel() for each in model.parameters() if each.requires_grad),
        buffers=sum(each.nbytes for each in model.buffers()),
        largest_layer=meta.largest_layer(model),
        activations=activations,
    )


def gpus() -> list[tuple[str, float]]:
    """The GPUs of this machine and other common GPUs, with their memory in bytes."""
    own = {f"{gpu.name} (here)": float(gpu.total) for gpu in hardware.detect().gpus if gpu.total}
    return [*own.items(), *((name, float(capacity * GIB)) for name, capacity in GPUS.items())]


@click.command("estimate-memory")
@click.argument("model", metavar="MODEL")
@click.option("--arguments", default="{}", metavar="JSON", help="Arguments for MODEL, such as '{\"layers\": 4}'.")
@click.option(
    "--input",
    "given",
    multiple=True,
    metavar="SHAPE",
    help="The shape of an input, such as 8,3,224,224 or 8,512:int64. Repeat it for each input.",
)
@click.option("--batch", default=1, show_default=True, help="Sequences per rank, for transformers models.")
@click.option("--sequence", default=512, show_default=True, help="Tokens per sequence, for transformers models.")
@click.option("--optimizer", type=click.Choice(list(OPTIMIZERS)), default="adam", show_default=True)
@click.option(
    "--num_processes",
    "--num-processes",
    "ranks",
    default=8,
    show_default=True,
    help="The number of GPUs for DDP and FSDP.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, in bytes.")
def command(
    model: str,
    arguments: str,
    given: tuple[str, ...],
    batch: int,
    sequence: int,
    optimizer: str,
    ranks: int,
    as_json: bool,
) -> None:
    """Estimate the memory that training MODEL takes on each GPU, and which GPUs it fits.

    MODEL is package.module:function_or_class, which returns a torch.nn.Module, or a folder with the config.json of a
    transformers model. It is created on the meta device, without storage, so even a large one needs no memory here.
    """
    found = measure(model, _arguments(arguments), given, batch, sequence)
    rows = table(found, ranks, optimizer)
    if as_json:
        known = gpus()
        content = {
            "model": asdict(found),
            "estimates": [{**asdict(row), "total": row.total, "fits": fitting(row, known)} for row in rows],
        }
        click.echo(json.dumps(content, indent=2))
        return
    _show(found, rows, optimizer, given, batch, sequence)


def _arguments(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"--arguments {text}: not valid JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigurationError(f'--arguments {text}: write names and values, such as {{"layers": 4}}')
    return found


def _show(found: Model, rows: list[Estimate], optimizer: str, given: Any, batch: int, sequence: int) -> None:
    trained = "" if found.trained == found.parameters else f", {found.trained:,} of them trained"
    click.echo(f"{found.name}: {found.parameters:,} parameters{trained}, {optimizer}\n")
    known = sorted(gpus(), key=lambda gpu: gpu[1])
    head = ("GB on each GPU", "precision", "weights", "gradients", "optimizer", "activations", "total", "fits")
    lines: list[tuple[str, ...]] = [head]
    for row in rows:
        parts = (row.weights, row.gradients, row.optimizer, row.activations, row.total)
        numbers = ["?" if part is None else f"{part / GIB:.2f}" for part in parts]
        fits = ", ".join(fitting(row, known)[:_SHOWN]) or "none of the known GPUs"
        lines.append((_STRATEGIES[row.strategy].format(row.ranks), row.precision, *numbers, fits))
    widths = [max(len(line[column]) for line in lines) for column in range(len(head) - 1)]
    for name, precision, *numbers, fits in lines:
        cells = [name.ljust(widths[0]), precision.ljust(widths[1])]
        cells += [number.rjust(width) for number, width in zip(numbers, widths[2:], strict=True)]
        click.echo("  ".join([*cells, fits]))
    if found.activations is None:
        click.echo("\nActivations are not counted: give the shape of a rank's input with --input, such as 8,3,224,224.")
    else:
        what = ", ".join(given) or f"{batch} × {sequence} tokens"
        click.echo(f"\nActivations are the tensors that autograd keeps from one forward pass of {what} on each rank.")
    click.echo(f"The total includes {OVERHEAD / GIB:.1f} GB for CUDA itself. docs/command-line.md has the formula.")
