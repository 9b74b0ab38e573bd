"""What one small training step costs in Python: plain torch, notebook-accel, Accelerate, Lightning Fabric."""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from common import Spread, goal, table, warn_if_busy
from torch import nn

from notebook_accel import Accelerator
from notebook_accel.train.ranks.gradient_state import GradientState
from notebook_accel.train.ranks.state import AcceleratorState

BATCH = 16
BATCHES = 64
"""An epoch's. All contenders run one in turn, so a slow moment of the machine hits them alike."""
Step = Callable[[torch.Tensor, torch.Tensor], None]


def parts() -> tuple[nn.Module, torch.optim.Optimizer, Any, Any]:
    """The same small problem for everyone."""
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.utils.data.TensorDataset(torch.randn(BATCH * BATCHES, 8), torch.randn(BATCH * BATCHES, 1))
    loader = torch.utils.data.DataLoader(data, batch_size=BATCH)
    return model, optimizer, loader, torch.optim.lr_scheduler.StepLR(optimizer, 1000)


def plain() -> Callable[[], None]:
    model, optimizer, loader, scheduler = parts()
    loss_of = nn.functional.mse_loss

    def epoch() -> None:
        for inputs, targets in loader:
            loss = loss_of(model(inputs), targets)
            loss.backward()
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()

    return epoch


def accelerated(accelerator: Any) -> Callable[[], None]:
    """The loop for Accelerate, which is the same for notebook-accel."""
    model, optimizer, loader, scheduler = accelerator.prepare(*parts())
    loss_of = nn.functional.mse_loss

    def epoch() -> None:
        for inputs, targets in loader:
            with accelerator.accumulate(model):
                loss = loss_of(model(inputs), targets)
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()

    return epoch


def ours() -> Callable[[], None]:
    return accelerated(Accelerator(cpu=True))


def peer() -> Callable[[], None]:
    from accelerate import Accelerator as Peer

    return accelerated(Peer(cpu=True))


def fabric() -> Callable[[], None]:
    from lightning_fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=1)
    raw, optimizer, loader, scheduler = parts()
    model, optimizer = fabric.setup(raw, optimizer)
    loader = fabric.setup_dataloaders(loader)
    loss_of = nn.functional.mse_loss

    def epoch() -> None:
        for inputs, targets in loader:
            loss = loss_of(model(inputs), targets)
            fabric.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()

    return epoch


def contenders() -> Iterator[tuple[str, Callable[[], Callable[[], None]]]]:
    yield "plain torch", plain
    yield "notebook-accel", ours
    yield "Accelerate", peer
    if importlib.util.find_spec("lightning_fabric"):
        yield "Lightning Fabric", fabric
    else:
        print("Lightning Fabric is not installed, and left out")


def measure(rounds: int) -> dict[str, Spread]:
    """Seconds of one step, by contender; one measurement a round, all contenders in turn."""
    epochs = {name: make() for name, make in contenders()}
    for epoch in epochs.values():
        epoch()
    times: dict[str, list[float]] = {name: [] for name in epochs}
    for turn in range(rounds):
        names = list(epochs) if turn % 2 else list(reversed(epochs))
        for name in names:
            began = time.perf_counter()
            epochs[name]()
            times[name].append((time.perf_counter() - began) / BATCHES)
    return {name: Spread(found) for name, found in times.items()}


def show(times: dict[str, Spread]) -> None:
    base = times["plain torch"]
    rows = []
    extra: dict[str, float] = {}
    for name, found in times.items():
        extra[name] = Spread([mine - theirs for mine, theirs in zip(found.values, base.values, strict=True)]).median
        rows.append([name, found.text(1e-6, 1), found.over(base).ratio(), f"{extra[name] * 1e6:.1f}"])
    head = ["one step", "us", "/ plain torch", "overhead, us"]
    table(f"accumulate, backward, step, scheduler, loader; Linear(8, 1), batch {BATCH}, one thread", head, rows)
    goal("overhead of notebook-accel over a plain step", extra["notebook-accel"] / base.median, 0.15)
    goal("overhead of notebook-accel / of Accelerate", extra["notebook-accel"] / extra["Accelerate"], 0.3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warn_if_busy()
    show(measure(30 if arguments.quick else 150))
    GradientState._reset_state()
    AcceleratorState._reset_state(reset_partial_state=True)


if __name__ == "__main__":
    main()
