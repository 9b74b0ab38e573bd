"""What it costs a rank to be watched: its bars and reports, the samples of its stack, the count of its batches.

The functions run in real ranks of a real kernel; what is compared takes turns in them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from common import Kernel, Spread, goal, in_turn, table, versus

_RATES = {20: 1, 100: 3}
"""Samples per second, and the percent of a core that they may take."""
_PLAIN = """
import json, os, sys, time
from tqdm import tqdm
nothing = open(os.devnull, "w")
def iterate(count):
    for _ in tqdm(range(count), file=nothing): pass
def refresh(count):
    bar = tqdm(total=count, file=nothing)
    for n in range(count):
        bar.n = n
        bar.refresh()
    bar.close()
for line in sys.stdin:
    name, count = json.loads(line)
    globals()[name](count)
    print(flush=True)
"""
"""What plain tqdm does in a process of its own, its bar drawn into a file."""


def measure(*, quick: bool) -> None:
    with Kernel() as kernel:
        calls(kernel, 5 if quick else 15, 100_000 if quick else 500_000)
        stalls(kernel, 9 if quick else 61)
        flamegraph(kernel, *((6, 2.0) if quick else (12, 4.0)))
        seen(kernel, 5 if quick else 25)


def calls(kernel: Kernel, rounds: int, count: int) -> None:
    """One call of what reports progress."""
    found = kernel.spreads(call, rounds, count)
    iterations = {"an iteration of a bar": (found["iterate"], found["plain iterate"])}
    versus("One call in a rank, ns", ("here", "plain tqdm"), iterations, 1e-9 * count)
    refreshes = {"n = ...; refresh()": (found["refresh"], found["plain refresh"])}
    versus("The same as Lightning does it, ns", ("here", "plain tqdm"), refreshes, 1e-9 * (count // 20))
    reports = {"report()": (found["report"], found["outside"])}
    versus("What a function reports, ns", ("in a launch", "outside"), reports, 1e-9 * count)
    print()
    goal("an iteration, of plain tqdm's", found["iterate"].over(found["plain iterate"]).median, 1.15)
    goal("report(), outside a launch", found["outside"].median / count * 1e6, 1, " µs")
    goal("report(), in a launch", found["report"].median / count * 1e6, 1, " µs")


def call(rounds: int, count: int) -> dict[str, Spread]:
    """On a rank: seconds of so many calls, by what is called."""
    from tqdm import tqdm

    from notebook_accel import report

    plain = subprocess.Popen([sys.executable, "-c", _PLAIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(*what: object) -> None:
        plain.stdin.write(json.dumps(what) + "\n")
        plain.stdin.flush()
        plain.stdout.readline()

    def iterate() -> None:
        for _ in tqdm(range(count)):
            pass

    def refresh() -> None:
        bar = tqdm(total=count // 20)
        for n in range(count // 20):
            bar.n = n
            bar.refresh()
        bar.close()

    def report_all() -> None:
        for n in range(count):
            report(loss=0.5, step=n)

    contenders = {
        "plain iterate": lambda: ask("iterate", count),
        "iterate": iterate,
        "plain refresh": lambda: ask("refresh", count // 20),
        "refresh": refresh,
        "report": report_all,
        "outside": outside_launch(report_all),
    }
    found = in_turn(contenders, rounds)
    plain.stdin.close()
    plain.wait()
    plain.stdout.close()
    return found


def outside_launch(function: Callable[[], None]) -> Callable[[], None]:
    """The function as where nobody listens to what it reports."""
    from notebook_accel import events, rank_local

    def call() -> None:
        inside = {**rank_local.space()}
        events.set_sink(None)
        function()
        rank_local.space().update(inside)

    return call


def stalls(kernel: Kernel, rounds: int) -> None:
    """A step whose waits are noticed, and a batch that is counted."""
    steps, batches = 300, 100_000
    found = kernel.spreads(step, rounds, steps, ranks=2)
    counted = kernel.spreads(count, rounds, batches)
    rows = {
        "a step of DDP": (found["step"], found["step, unsampled"]),
        "a small all_reduce": (found["all_reduce"], found["all_reduce, unsampled"]),
    }
    versus("Processor time in a rank, µs", ("sampled", "without"), rows, 1e-6 * steps)
    print(f"  one sample, of ten a second: {found['look'].text(1e-6)}")
    print()
    goal("a step, compared with one that is not sampled", found["step"].over(found["step, unsampled"]).median, 1.01)
    more = counted["inside"].median - counted["outside"].median
    goal("a batch, counted", more / batches * 1e6, 1, " µs")


def step(rounds: int, steps: int) -> dict[str, Spread]:
    """On a rank: processor seconds of so many steps, and of all-reduces, with samples of the stack and without."""
    import torch
    import torch.distributed as dist

    from notebook_accel import Accelerator
    from notebook_accel.launch.rank.stacks.collective_wait import WaitDetector

    accelerator = Accelerator(cpu=True)
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.01))
    x, one, sample = torch.randn(64, 256), torch.ones(1), WaitDetector.sample

    def train() -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            accelerator.backward(model(x).square().mean())
            optimizer.step()

    def reduce() -> None:
        for _ in range(steps):
            dist.all_reduce(one)

    def unsampled(function: Callable[[], None]) -> Callable[[], None]:
        def call() -> None:
            WaitDetector.sample = lambda self, now: []
            function()
            WaitDetector.sample = sample

        return call

    contenders = {"step": train, "step, unsampled": unsampled(train)}
    contenders |= {"all_reduce": reduce, "all_reduce, unsampled": unsampled(reduce)}
    return {**in_turn(contenders, rounds, dist.barrier, time.process_time), "look": look(2000)}


def count(rounds: int, batches: int) -> dict[str, Spread]:
    """On a rank: seconds of so many batches of a loader, counted and not."""
    import torch

    from notebook_accel import Accelerator
    from notebook_accel.train.ranks.step_observers import LoaderBars

    loader = Accelerator(cpu=True).prepare(torch.utils.data.DataLoader(torch.randn(batches), batch_size=1))
    ready = [torch.ones(1)] * batches

    def iterate() -> None:
        for _ in LoaderBars().batches(loader, iter(ready)):
            pass

    return in_turn({"inside": iterate, "outside": outside_launch(iterate)}, rounds)


def look(times: int) -> Spread:
    """On a rank: processor seconds of each sample of the main thread's stack, taken from beside it."""
    from notebook_accel.launch.rank.stacks.collective_wait import WaitDetector

    spent: list[float] = []

    def sample() -> None:
        waiting = WaitDetector(threading.main_thread().ident)
        for now in range(times):
            began = time.thread_time()
            waiting.sample(float(now))
            spent.append(time.thread_time() - began)

    beside = threading.Thread(target=sample)
    beside.start()
    while beside.is_alive():
        time.sleep(0)
    return Spread(spent)


def flamegraph(kernel: Kernel, rounds: int, seconds: float) -> None:
    """The CPU time of the thread that takes the samples of a flame graph."""
    with tempfile.TemporaryDirectory() as folder:
        kernel.run(
            "import json, watching\nfrom notebook_accel import notebook_launcher\n"
            f"job = notebook_launcher(watching.work, ({folder!r},), num_processes=1, device='cpu', block=False)\n"
            f"turns = watching.sample(job, {folder!r}, {rounds}, {seconds})"
        )
        steps, turns = json.loads(kernel.run("print(json.dumps([job.result()[0], turns]))"))
    used: dict[int, list[float]] = {rate: [] for rate in (0, *_RATES)}
    each_step: dict[int, list[float]] = {rate: [] for rate in used}
    for rate, first, last in turns:
        inside = [each for each in steps if first <= each[0] and each[1] <= last]
        used[rate].append((inside[-1][3] - inside[0][3]) / (inside[-1][1] - inside[0][1]))
        each_step[rate].append(sum(cpu for _, _, cpu, _ in inside) / len(inside))
    rows = []
    for rate in used:
        of_step = Spread(each_step[rate])
        rows.append(
            [str(rate), Spread(used[rate]).text(), of_step.text(1e-6), of_step.over(Spread(each_step[0])).ratio()]
        )
    head = ["samples per second", "CPU of the thread, ms per second", "CPU of a step, µs", "ratio"]
    table("In a rank of which a flame graph is made", head, rows)
    print()
    for rate, most in _RATES.items():
        extra = 100 * (Spread(used[rate]).median - Spread(used[0]).median)
        goal(f"{rate} samples per second, of a core", extra, most, "%")


def work(folder: str) -> list[tuple[float, float, float, float]]:
    """On a rank: trains until a file says so; for each ten steps, begin, end, CPU of a step, and the sampler's CPU."""
    import torch

    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    x, steps = torch.randn(64, 256), []
    (thread,) = [each.native_id for each in threading.enumerate() if each.name == "notebook-accel"]
    while not os.path.exists(f"{folder}/end"):
        began, cpu = time.monotonic(), time.thread_time()
        for _ in range(10):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        Path(folder, "begun").touch()
        sampler = int(Path(f"/proc/self/task/{thread}/schedstat").read_text().split()[0]) / 1e9
        steps.append((began, time.monotonic(), (time.thread_time() - cpu) / 10, sampler))
    return steps


def sample(job: Any, folder: str, rounds: int, seconds: float) -> list[tuple[int, float, float]]:
    """In the kernel: samples at each rate in turn; returns the rate, and the time from which and to which it held."""
    while not Path(folder, "begun").exists():
        time.sleep(0.01)
    turns = []
    for _ in range(rounds):
        for rate in (0, *_RATES):
            began = time.monotonic()
            if rate:
                job.flamegraph(seconds, rate=rate)
            else:
                time.sleep(seconds)
            turns.append((rate, began + 0.1 * seconds, began + 0.9 * seconds))
    Path(folder, "end").touch()
    return turns


def seen(kernel: Kernel, rounds: int) -> None:
    """A training step with a bar and a report, of the time of one without.

    By CPU time, and by what stands between the steps: two loops that are compared differ by more than is looked for.
    """
    steps, between, others = (Spread(each) for each in zip(*kernel.first_rank(train, rounds, 200), strict=True))
    more = [bar + rest for bar, rest in zip(between.values, others.values, strict=True)]
    ratio = Spread([1 + extra / step for extra, step in zip(more, steps.values, strict=True)])
    rows = [
        ["a step", steps.text(1e-6)],
        ["its bar and its report", between.text(1e-6, 1)],
        ["what the rank's other threads do meanwhile", others.text(1e-6, 1)],
        ["all, of the step", ratio.text(1, 4)],
    ]
    table("CPU time of a training step in a rank, µs", ["", ""], rows)
    print()
    goal("a training step, of one that nobody sees", ratio.median, 1.01)


def train(rounds: int, steps: int) -> list[tuple[float, float, float]]:
    """On a rank, for each round: CPU seconds of a step, and those that its report and the other threads add."""
    import torch
    from tqdm import tqdm

    from notebook_accel import report

    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    optimizer = torch.optim.Adam(model.parameters())
    inputs, targets = torch.randn(128, 256), torch.randint(10, (128,))

    def one() -> float:
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    def measured(numbers: Iterable[int], tell: Callable[..., object]) -> tuple[float, float, float]:
        inside, between, before = [], [], None
        everything, main = time.process_time_ns(), time.thread_time_ns()
        for number in numbers:
            began = time.thread_time_ns()
            if before is not None:
                between.append(began - before)
            loss = one()
            before = time.thread_time_ns()
            inside.append(before - began)
            tell(loss=loss, step=number)
        others = (time.process_time_ns() - everything) - (time.thread_time_ns() - main)
        return Spread(inside).median / 1e9, Spread(between).median / 1e9, others / steps / 1e9

    found = []
    for _ in range(rounds + 1):
        bare = measured(range(steps), lambda **_: None)
        seen = measured(tqdm(range(steps)), report)
        found.append((bare[0], seen[1] - bare[1], seen[2] - bare[2]))
    return found[1:]
