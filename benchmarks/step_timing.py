"""What it costs to measure the parts of each step: steps with the clock and without, by CPU time, in turn."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from common import Spread, goal, table, warn_if_busy
from torch import nn

from notebook_accel import Accelerator, events, rank_local
from notebook_accel.events.emit import STEP_TIMES
from notebook_accel.train.ranks.gradient_state import GradientState
from notebook_accel.train.ranks.state import AcceleratorState

Epoch = Callable[[], None]
SIZES = {"Linear(8, 1), batch 16": (8, 0, 16, 1.03), "2 layers of 256, batch 64": (256, 256, 64, 1.01)}
"""By name: features, hidden features, rows of a batch, and the goal of the ratio."""
BATCHES = 64


def epoch_of(features: int, hidden: int, rows: int) -> Epoch:
    """An epoch of a training run that is prepared here, and measured if a listener for events is set."""
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    model: Any = nn.Linear(features, 1)
    if hidden:
        model = nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.Linear(hidden, 1))
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.utils.data.TensorDataset(torch.randn(rows * BATCHES, features), torch.randn(rows * BATCHES, 1))
    loader: Any = torch.utils.data.DataLoader(data, batch_size=rows)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    def epoch() -> None:
        for inputs, targets in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(inputs), targets)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()

    return epoch


def measure(features: int, hidden: int, rows: int, rounds: int) -> tuple[Spread, Spread]:
    """CPU seconds of a step without the clock, and with it."""
    events.set_sink(None)
    without = epoch_of(features, hidden, rows)
    events.set_sink(lambda event: None)
    with_clock = epoch_of(features, hidden, rows)
    clock, observers = rank_local.space()[STEP_TIMES], GradientState().observers
    times: dict[Epoch, list[float]] = {without: [], with_clock: []}
    for turn in range(rounds + 1):
        for epoch in (without, with_clock) if turn % 2 else (with_clock, without):
            rank_local.space()[STEP_TIMES] = clock if epoch is with_clock else None
            (observers.begin_with if epoch is with_clock else observers.remove)(clock)
            began = time.process_time()
            epoch()
            times[epoch].append((time.process_time() - began) / BATCHES)
    rank_local.space().pop(STEP_TIMES)
    return Spread(times[without][1:]), Spread(times[with_clock][1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warn_if_busy()
    rows, found = [], []
    for name, (features, hidden, batch, most) in SIZES.items():
        without, with_clock = measure(features, hidden, batch, 30 if arguments.quick else 150)
        ratio = with_clock.over(without)
        rows.append([name, without.text(1e-6, 1), with_clock.text(1e-6, 1), ratio.ratio()])
        found.append((name, ratio.median, most))
    table("CPU time of a step", ["model", "without, us", "with, us", "with / without"], rows)
    for name, median, most in found:
        goal(f"a measured step / one that is not, {name}", median, most)
    GradientState._reset_state()
    AcceleratorState._reset_state(reset_partial_state=True)


if __name__ == "__main__":
    main()
