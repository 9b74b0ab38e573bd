"""What the training loop costs: a small step, an epoch on 2 ranks, an evaluation that gathers 100,000 samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from common import PACKAGES, Kernel, Spread, goal, in_turn, table, versus
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

RANKS = 2
SAMPLES = 100_003  # so that the last batch has repeated samples to leave out
FEATURES, CLASSES = 32, 10


@dataclass(frozen=True)
class Problem:
    """A model with one output, and an epoch of data for each rank."""

    features: int
    hidden: int
    """Units; 0 for a single layer."""
    batch: int
    batches: int

    def parts(self, ranks: int = 1) -> tuple[nn.Module, torch.optim.Optimizer, Any, TensorDataset]:
        """The same for every contender and every rank: model, optimizer, scheduler, data."""
        torch.manual_seed(0)
        last = nn.Linear(self.hidden or self.features, 1)
        model = nn.Sequential(nn.Linear(self.features, self.hidden), nn.ReLU(), last) if self.hidden else last
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        samples = self.batch * self.batches * ranks
        data = TensorDataset(torch.randn(samples, self.features), torch.randn(samples, 1))
        return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1000), data


SMALL = Problem(8, 0, 16, 64)
MODELS = {
    "small: 64 to 256 to 1, batch 32": Problem(64, 256, 32, 40),
    "medium: 512 to 1024 to 1, batch 64": Problem(512, 1024, 64, 40),
}
EVALUATIONS = {
    "classes, batch 64": (64, "labels"),
    "classes, batch 512": (512, "labels"),
    "scores, batch 64": (64, "scores"),
    "scores, batch 2048": (2048, "scores"),
    "objects, batch 256": (256, "objects"),
}
"""By name: samples of a rank's batch, and what is gathered of each.

`labels` are predicted and true classes; `scores` have a row of numbers for each sample too; `objects` are Python ones.
"""


def measure(*, quick: bool) -> None:
    steps(30 if quick else 150)
    with Kernel() as kernel:
        epochs(kernel, 5 if quick else 25)
        evaluations(kernel, 3 if quick else 11)


def by_hand(problem: Problem, ranks: int = 1) -> Callable[[], None]:
    """An epoch in plain torch."""
    model, optimizer, scheduler, data = problem.parts(ranks)
    sampler = DistributedSampler(data, shuffle=False) if ranks > 1 else None
    loader = DataLoader(data, batch_size=problem.batch, sampler=sampler)
    model = DistributedDataParallel(model) if ranks > 1 else model

    def epoch() -> None:
        for inputs, targets in loader:
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()

    return epoch


def accelerated(package: str, problem: Problem, ranks: int = 1) -> Callable[[], None]:
    """An epoch with Accelerate, which is the same with notebook-accel."""
    accelerator = __import__(package).Accelerator(cpu=True)
    *parts, data = problem.parts(ranks)
    model, optimizer, scheduler, loader = accelerator.prepare(*parts, DataLoader(data, batch_size=problem.batch))

    def epoch() -> None:
        for inputs, targets in loader:
            with accelerator.accumulate(model):
                accelerator.backward(nn.functional.mse_loss(model(inputs), targets))
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()

    return epoch


def fabric(problem: Problem) -> Callable[[], None]:
    """An epoch with Lightning Fabric."""
    from lightning_fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=1)
    raw, raw_optimizer, scheduler, data = problem.parts()
    model, optimizer = fabric.setup(raw, raw_optimizer)
    loader = fabric.setup_dataloaders(DataLoader(data, batch_size=problem.batch))

    def epoch() -> None:
        for inputs, targets in loader:
            fabric.backward(nn.functional.mse_loss(model(inputs), targets))
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()

    return epoch


def steps(rounds: int) -> None:
    """A small step in one process, on one thread, by what it takes beyond a plain one of the same round."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    contenders = {"plain torch": by_hand(SMALL)}
    contenders |= {name: accelerated(package, SMALL) for name, package in PACKAGES.items()}
    contenders["Lightning Fabric"] = fabric(SMALL)
    found = in_turn(contenders, rounds)
    torch.set_num_threads(threads)
    plain, unit = found["plain torch"], 1e-6 * SMALL.batches
    beyond = {name: each.beyond(plain).median for name, each in found.items()}
    rows = [
        [name, each.text(unit, 1), each.over(plain).ratio(), f"{beyond[name] / unit:.1f}"]
        for name, each in found.items()
    ]
    title = f"accumulate, backward, step, scheduler, loader; Linear(8, 1), batch {SMALL.batch}, one thread"
    table(title, ["one step", "µs", "/ plain torch", "overhead, µs"], rows)
    goal("overhead of notebook-accel over a plain step", beyond["notebook-accel"] / plain.median, 0.15)
    goal("overhead of notebook-accel / of Accelerate", beyond["notebook-accel"] / beyond["Accelerate"], 0.3)


def epochs(kernel: Kernel, rounds: int) -> None:
    """The throughput of 2 gloo ranks."""
    title = f"An epoch of 40 batches on {RANKS} ranks, ms"
    for name, ratio in on_ranks(kernel, title, train, MODELS, rounds, "by hand"):
        goal(f"time of an epoch, notebook-accel / by hand, {name.partition(':')[0]}", ratio, 1 / 0.98)


def on_ranks(
    kernel: Kernel,
    title: str,
    measured: Callable[[str, int], dict[str, Spread]],
    names: Iterable[str],
    rounds: int,
    peer: str,
) -> list[tuple[str, float]]:
    """Measures each of the names on the ranks, beside the peer; returns the median of the ratios of each."""
    rows = {}
    for name in names:
        found = kernel.spreads(measured, name, rounds, ranks=RANKS)
        rows[name] = (found["notebook-accel"], found[peer])
    versus(title, ("notebook-accel", peer), rows)
    return [(name, ours.over(other).median) for name, (ours, other) in rows.items()]


def train(name: str, rounds: int) -> dict[str, Spread]:
    """On a rank: seconds of an epoch, by loop."""
    torch.set_num_threads(1)
    ours = accelerated("notebook_accel", MODELS[name], RANKS)
    contenders = {"notebook-accel": ours, "by hand": by_hand(MODELS[name], RANKS)}
    return in_turn(contenders, rounds, torch.distributed.barrier)


def evaluations(kernel: Kernel, rounds: int) -> None:
    """`gather_for_metrics` on 2 gloo ranks."""
    title = f"{SAMPLES:,} samples on {RANKS} ranks, ms"
    for name, ratio in on_ranks(kernel, title, gather, EVALUATIONS, rounds, "Accelerate"):
        goal(f"time of an evaluation, notebook-accel / Accelerate, {name}", ratio, 1)


class Rows(Dataset[Any]):
    """Whole batches at a time: one sample after the other takes longer to fetch than all that is measured here."""

    def __init__(self, data: TensorDataset) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitems__(self, indices: list[int]) -> tuple[torch.Tensor, ...]:
        return self.data[indices]  # type: ignore[index]


def gather(name: str, rounds: int) -> dict[str, Spread]:
    """On a rank: seconds of an evaluation, by package."""
    torch.set_num_threads(1)
    batch, what = EVALUATIONS[name]
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(SAMPLES, FEATURES, generator=generator)
    data = TensorDataset(inputs, torch.randint(0, CLASSES, (SAMPLES,), generator=generator))
    contenders = {side: evaluation(package, batch, what, data) for side, package in PACKAGES.items()}
    return in_turn(contenders, rounds, torch.distributed.barrier)


def evaluation(package: str, batch: int, what: str, data: TensorDataset) -> Callable[[], None]:
    """An evaluation with one of the packages."""
    accelerator = __import__(package).Accelerator(cpu=True)
    model = nn.Linear(FEATURES, CLASSES)
    loader = accelerator.prepare(DataLoader(Rows(data), batch_size=batch, collate_fn=tuple))

    def evaluate() -> None:
        seen = 0
        with torch.no_grad():
            for inputs, targets in loader:
                found = accelerator.gather_for_metrics(outputs(what, model(inputs), targets))
                seen += len(found) if isinstance(found, list) else len(found[-1])
        if seen != SAMPLES:
            raise AssertionError(f"{package} has gathered {seen} samples of {SAMPLES}")

    return evaluate


def outputs(what: str, scores: torch.Tensor, targets: torch.Tensor) -> Any:
    """What is gathered of a batch."""
    if what == "labels":
        return scores.argmax(-1), targets
    if what == "scores":
        return scores, targets
    return list(zip(scores.argmax(-1).tolist(), targets.tolist(), strict=True))
