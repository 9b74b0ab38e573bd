"""Throughput of data-parallel training on 2 gloo ranks: a hand-written DDP loop and notebook-accel's, in turn."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from common import Spread, goal, in_turn, table, warn_if_busy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from notebook_accel import Accelerator, notebook_launcher

RANKS = 2
SIZES = {"small": (64, 256, 32), "medium": (512, 1024, 64)}
"""By name: features, hidden units, samples of a rank's batch."""
BATCHES = 40


def rank(size: str, rounds: int) -> dict[str, list[float]]:
    """On each rank: seconds of an epoch, by loop; one of each in a round."""
    torch.set_num_threads(1)
    features, _, batch = SIZES[size]
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(BATCHES * batch * RANKS, features, generator=generator)
    data = TensorDataset(inputs, torch.randn(len(inputs), 1, generator=generator))
    accelerator = Accelerator()
    epochs = {"by hand": by_hand(size, data), "notebook-accel": ours(size, data, accelerator)}
    return in_turn(epochs, rounds, accelerator.wait_for_everyone)


def parts(size: str) -> tuple[torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    """The same model for both."""
    features, hidden, _ = SIZES[size]
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(features, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1000)


def by_hand(size: str, data: TensorDataset) -> Callable[[], None]:
    raw, optimizer, scheduler = parts(size)
    model = DistributedDataParallel(raw)
    loader = DataLoader(data, batch_size=SIZES[size][2], sampler=DistributedSampler(data, shuffle=False))

    def epoch() -> None:
        for inputs, targets in loader:
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()

    return epoch


def ours(size: str, data: TensorDataset, accelerator: Accelerator) -> Callable[[], None]:
    loader = DataLoader(data, batch_size=SIZES[size][2])
    model, optimizer, scheduler, loader = accelerator.prepare(*parts(size), loader)

    def epoch() -> None:
        for inputs, targets in loader:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.mse_loss(model(inputs), targets)
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()

    return epoch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    arguments = parser.parse_args()
    warn_if_busy()
    rows = []
    ratios = {}
    for size, (features, hidden, batch) in SIZES.items():
        times = notebook_launcher(rank, (size, 5 if arguments.quick else 25), num_processes=RANKS, device="cpu")[0]
        hand, ours = (Spread(times[name]) for name in ("by hand", "notebook-accel"))
        ratios[size] = ours.over(hand)
        samples = BATCHES * batch * RANKS
        speeds = [f"{samples / each.median:,.0f}" for each in (hand, ours)]
        rows.append([f"{size}: {features} to {hidden} to 1, batch {batch}", *speeds, ratios[size].ratio()])
    table(
        f"Samples a second on {RANKS} ranks",
        ["model", "by hand", "notebook-accel", "time, notebook-accel / by hand"],
        rows,
    )
    for size, ratio in ratios.items():
        goal(f"time of an epoch, notebook-accel / by hand, {size}", ratio.median, 1 / 0.98)


if __name__ == "__main__":
    main()
