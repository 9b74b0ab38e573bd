"""What checkpoints of `Accelerator.epochs` cost a training run, and how soon it goes on after a rank was killed."""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from common import Kernel, Spread, goal, in_turn, table, versus
from torch.utils.data import DataLoader, TensorDataset

from notebook_accel import Accelerator

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


def steps(rounds: int) -> dict[str, Spread]:
    """On a rank: processor seconds of an epoch of small steps, watched or not."""
    torch.set_num_threads(1)
    accelerator = Accelerator()
    with tempfile.TemporaryDirectory() as folder:
        plain, watched = small(accelerator, ""), small(accelerator, folder)
        observers = accelerator.gradient_state.observers
        loop = observers.batches[-1].__self__  # added last

        def without() -> None:
            observers.remove(loop)
            plain()
            observers.add(loop)

        contenders = {"plain": without, "watched": watched}
        return in_turn(contenders, rounds, accelerator.wait_for_everyone, time.process_time)


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
        times: list[float] = []
        saved_in: list[int] = []
        newest = None
        began = last = time.perf_counter()
        for _ in accelerator.epochs(1):
            loop = accelerator.gradient_state.observers.batches[-1].__self__  # added last, if it saves
            for (inputs,) in loader:
                accelerator.backward(model(inputs).square().mean())
                optimizer.step()
                optimizer.zero_grad()
                times.append(time.perf_counter() - last)
                last = time.perf_counter()
                if saves and loop._saved != newest:
                    saved_in += [len(times) - 1] if newest else []
                    newest = loop._saved
                if last - began > 2.3 * seconds and len(saved_in) == 2 * saves:
                    break
            for thread in threading.enumerate():
                if thread.name == "checkpoint":
                    thread.join()
            state = [model.weight, *optimizer.optimizer.state[model.weight].values()]
            copied = time.perf_counter()
            copies = [each.detach().clone() for each in state]
            copy = time.perf_counter() - copied
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


def measure(*, quick: bool) -> None:
    gigabytes, seconds = (0.1, 4.0) if quick else (1.0, 30.0)
    with Kernel() as kernel:
        rows = {}
        for ranks in (1, 2):
            found = kernel.spreads(steps, 18 if quick else 66, ranks=ranks)
            rows[f"{ranks} ranks"] = (found["watched"], found["plain"])
        what = "Processor time of a small step that no checkpoint is due at, µs"
        versus(what, ("watched", "plain"), rows, BATCHES * 1e-6)
        saves(kernel, gigabytes, seconds, 1 if quick else 3)
        again = Spread([restart(kernel) for _ in range(3 if quick else 6)][1:])
        table("a rank is killed", ["ranks", "to the next step, ms"], [["2", again.text()]])
    print()
    for ranks, (watched, plain) in rows.items():
        goal(f"processor time of a small step, watched / plain, {ranks}", watched.over(plain).median, 1.02)
    goal("from a killed rank to the next step", again.median, 2, " s")


def saves(kernel: Kernel, gigabytes: float, seconds: float, rounds: int) -> None:
    """For how long training stops while a large state is saved."""
    found: dict[str, list[float]] = {name: [] for name in ("first", "later", "copy", "cost")}
    for _ in range(rounds):
        without, saving = (kernel.first_rank(train_large, gigabytes, seconds, each) for each in (False, True))
        step = statistics.median(saving["times"])
        first, later = saving["saves"]
        cost = statistics.mean(saving["times"]) / statistics.mean(without["times"])
        for name, value in zip(found, (first - step, later - step, saving["copy"], cost), strict=True):
            found[name].append(value)
    first, later, copy, cost = map(Spread, found.values())
    title = f"a save of {gigabytes:g} GB every {seconds:g} s stops the training, ms"
    table(title, ["the first", "the next", "a copy to new memory"], [[each.text() for each in (first, later, copy)]])
    print()
    goal("the training's stop for the first save, beyond a copy", first.median - copy.median, 0.2, " s")
    goal("the training's stop for a later save, beyond a copy", later.median - copy.median, 0.2, " s")
    goal(f"time of a step with a save every {seconds:g} s / without", cost.median, 1.03)


def restart(kernel: Kernel) -> float:
    """Seconds from a rank's death to the next step."""
    with tempfile.TemporaryDirectory() as folder:
        options = {"checkpoint": f"{folder}/run", "every": 50, "max_restarts": 1}
        return float(kernel.first_rank(train_and_die, folder, ranks=2, **options))
