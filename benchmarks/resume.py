"""What checkpoints of `Accelerator.epochs` cost a training run, and how soon it goes on after a rank was killed."""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from common import Spread, goal, in_turn, table, warn_if_busy
from torch.utils.data import DataLoader, TensorDataset

from notebook_accel import Accelerator, notebook_launcher
from notebook_accel.launch import engines
from notebook_accel.launch.engines.preloader import TRAINING

BATCHES = 200
STATE = 3
"""AdamW keeps two tensors for each parameter, so the state is three times the model."""


def set_folder(folder: str, every: str) -> None:
    """Has the next loop of this rank save there; empty: it does not."""
    os.environ |= {"NOTEBOOK_ACCEL_CHECKPOINT_DIR": folder, "NOTEBOOK_ACCEL_CHECKPOINT_EVERY": every}


def small(accelerator: Accelerator, folder: str) -> Callable[[], None]:
    """An epoch of small steps: with a folder in the loop that watches them, and saves nothing meanwhile."""
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = TensorDataset(torch.randn(16 * BATCHES, 8), torch.randn(16 * BATCHES, 1))
    set_folder(folder, "1 h")
    prepared = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=16))
    model, optimizer, loader = prepared
    loop = accelerator.epochs(10**6)
    next(loop)

    def epoch() -> None:
        for inputs, targets in loader:
            accelerator.backward(torch.nn.functional.mse_loss(model(inputs), targets))
            optimizer.step()
            optimizer.zero_grad()
        next(loop)

    return epoch


def steps(rounds: int) -> list[dict[str, list[float]]]:
    """On a rank: seconds of an epoch of small steps, watched or not; then the same in processor time."""
    torch.set_num_threads(1)
    accelerator = Accelerator()
    with tempfile.TemporaryDirectory() as folder:
        found = {"plain": small(accelerator, ""), "watched": small(accelerator, folder)}
        plain, watched = found["plain"], found["watched"]
        observers = accelerator.gradient_state.observers
        loop = observers.batches[-1].__self__  # added last

        def without() -> None:
            observers.remove(loop)
            plain()
            observers.add(loop)

        contenders = {"plain": without, "watched": watched}
        meet = accelerator.wait_for_everyone
        # Processor time has the goal: it is measured more often, so that its median does not depend on the hour.
        return [
            in_turn(contenders, rounds, meet, time.perf_counter),
            in_turn(contenders, 6 * rounds, meet, time.process_time),
        ]


@dataclass(frozen=True)
class Stop:
    """What a step took, or how long the training stopped for a save."""

    seconds: float
    cpu: float
    """Of the thread of the training. Unlike the time, it does not depend on what else the machine does."""

    def __sub__(self, other: Stop) -> Stop:
        return Stop(self.seconds - other.seconds, self.cpu - other.cpu)


def now() -> Stop:
    return Stop(time.perf_counter(), time.thread_time())


def train_large(gigabytes: float, seconds: float, saves: bool) -> dict[str, Any]:
    """On a rank: trains with a save every so many seconds, twice, or none; returns the time of each step."""
    with tempfile.TemporaryDirectory() as folder:
        set_folder(folder if saves else "", f"{seconds:g} s")
        accelerator = Accelerator()
        rows = int(gigabytes * 2**30 / 4 / STATE / 1024)
        model = torch.nn.Linear(1024, rows, bias=False)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        loader = DataLoader(TensorDataset(torch.randn(10_000, 1024)), batch_size=1)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        times: list[Stop] = []
        saved_in: list[int] = []
        newest = None
        began = last = now()
        for _ in accelerator.epochs(1):
            loop = accelerator.gradient_state.observers.batches[-1].__self__  # added last, if it saves
            for (inputs,) in loader:
                accelerator.backward(model(inputs).square().mean())
                optimizer.step()
                optimizer.zero_grad()
                times.append(now() - last)
                last = now()
                if saves and loop._saved != newest:
                    saved_in += [len(times) - 1] if newest else []
                    newest = loop._saved
                if last.seconds - began.seconds > 2.3 * seconds and len(saved_in) == 2 * saves:
                    break
            for thread in threading.enumerate():
                if thread.name == "checkpoint":
                    thread.join()
            state = [model.weight, *optimizer.optimizer.state[model.weight].values()]
            copied = now()
            copies = [each.detach().clone() for each in state]
            copy = now() - copied
            del copies
            return {"times": times, "saves": [times[index] for index in saved_in], "copy": copy}
    raise AssertionError("the data did not last")


def train_and_die(folder: str) -> float:
    """On each rank: rank 1 is killed on the way; returns the seconds from then to the first step afterwards."""
    accelerator = Accelerator()
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(TensorDataset(torch.randn(400, 64)), batch_size=1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    killed = Path(folder, "killed")
    for _ in accelerator.epochs(1):
        for step, (inputs,) in enumerate(loader):
            accelerator.backward(model(inputs).square().mean())
            optimizer.step()
            optimizer.zero_grad()
            if killed.exists():
                return time.time() - killed.stat().st_mtime
            if step == 150 and accelerator.process_index == 1:
                killed.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            if step >= 150:
                time.sleep(0.01)  # not counted twice by a rank that has not noticed yet
    raise AssertionError("nothing was killed")


def restarts(rounds: int) -> Spread:
    found = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            options = {"checkpoint": f"{folder}/run", "every": 50, "max_restarts": 1}
            found.append(max(notebook_launcher(train_and_die, (folder,), 2, device="cpu", **options)))
    return Spread(found[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smaller state, less time, fewer rounds")
    quick = parser.parse_args().quick
    warn_if_busy()
    # As in a notebook: otherwise, each rank's first step of an optimizer would import for seconds.
    engines.get().warm()
    engines.get().preload(TRAINING)
    gigabytes, seconds, rounds = (0.1, 4.0, 3) if quick else (1.0, 30.0, 11)

    rows, ratios = [], {}
    for size in (1, 2):
        found = notebook_launcher(steps, (rounds,), size, device="cpu")[0]
        for what, times in zip(("time", "processor time"), found, strict=True):
            plain, watched = Spread(times["plain"]), Spread(times["watched"])
            ratios[size] = watched.over(plain)
            per_step = BATCHES * 1e-6
            rows.append([str(size), what, plain.text(per_step), watched.text(per_step), ratios[size].ratio()])
    table("a small step that no checkpoint is due at", ["ranks", "", "plain, us", "watched, us", "ratio"], rows)

    first, later, copies, costs = [], [], [], []
    for _ in range(1 if quick else 3):
        by_saving = {
            saves: notebook_launcher(train_large, (gigabytes, seconds, saves), 1, device="cpu")[0]
            for saves in (False, True)
        }
        times = {saves: found["times"] for saves, found in by_saving.items()}
        step = Stop(*(statistics.median(getattr(each, name) for each in times[True]) for name in ("seconds", "cpu")))
        stops = [each - step for each in by_saving[True]["saves"]]
        first.append(stops[0])
        later.append(stops[1])
        copies.append(by_saving[True]["copy"])
        means = {saves: statistics.mean(each.seconds for each in found) for saves, found in times.items()}
        costs.append(means[True] / means[False])
    cost = Spread(costs)
    spreads = [
        [Spread([getattr(each, name) for each in found]) for found in (first, later, copies)]
        for name in ("seconds", "cpu")
    ]
    table(
        f"a save of {gigabytes:g} GB every {seconds:g} s stops the training, ms",
        ["", "the first", "the next", "a copy to new memory"],
        [[name, *(each.text() for each in row)] for name, row in zip(("time", "processor time"), spreads, strict=True)],
    )
    stop, next_stop, copy = spreads[0]

    again = restarts(3 if quick else 6)
    table("a rank is killed", ["ranks", "to the next step, ms"], [["2", again.text()]])
    print()
    for size, ratio in ratios.items():
        goal(f"processor time of a small step, watched / plain, {size} ranks", ratio.median, 1.02)
    goal("the training's stop for the first save, beyond a copy", stop.median - copy.median, 0.2, " s")
    goal("the training's stop for a later save, beyond a copy", next_stop.median - copy.median, 0.2, " s")
    goal(f"time of a step with a save every {seconds:g} s / without", cost.median, 1.03)
    goal("from a killed rank to the next step", again.median, 2, " s")


if __name__ == "__main__":
    main()
