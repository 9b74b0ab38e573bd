"""What it costs to see a job live: messages to the browser, the kernel's time, the browser's frames, a rank's steps.

Kernel, server and browser are real: JupyterLab in chromium. 64 ranks are real processes, whose bars move faster than a
rank tells; 256 are not, on a machine of few cores: their events, as many as that many ranks tell,
are applied to a real job in the kernel, which a real view draws.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import progress
import psutil
import tasks
from common import Kernel, Spread, goal, table, warn_if_busy

from tests.browser import chromium, kernels
from tests.browser.page import Cell, Page
from tests.browser.server import Server

_TRAIN = """
import os, time
from tqdm.auto import tqdm
from notebook_accel import notebook_launcher, report

def train():
    bars = [tqdm(total=total, desc=name) for name, total in (("epoch", 200), ("batch", 2000), ("sample", 20000))]
    step = 0
    while not os.path.exists("end"):
        step += 1
        for factor, bar in zip((1, 10, 100), bars):
            bar.update(factor if bar.n < bar.total else -bar.n)
        if step % 20 == 0:
            report(loss=1 / step, step=step)
        time.sleep(0.05)
"""
_PRETEND = """
import time
from notebook_accel.events import *
from notebook_accel.launch.wire import constants
from notebook_accel.launch.show import console
from notebook_accel.launch.show.job_views import Views
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.job.job import Job

def pretend(ranks):
    # The loop of launch/driver/call_runner.py, with ranks that tell what their three bars do as often as so many would.
    job = Job("train", 0, ranks, "no hardware")
    job.apply(None, AttemptStarted(0))
    for rank in range(ranks):
        job.apply(rank, Hello(1, "host"))
        job.apply(rank, PhaseChanged(Phase.RUNNING))
    view = Views(job, console.current.choose_view())
    began = sent = time.monotonic()
    while not os.path.exists("end"):
        now = time.monotonic()
        if now - sent >= constants.report_interval(ranks):
            sent, tenths = now, int((now - began) * 10)
            for rank in range(ranks):
                for bar, total in enumerate((200, 2000, 20000)):
                    n = (tenths * 10**bar * (100 + rank % 7) // 100) % total
                    job.apply(rank, Bar(bar, n, total, "bar", rate=10.0, elapsed=now - began, depth=bar))
                job.apply(rank, Metrics({"loss": 1 / (1 + tenths)}, tenths))
        view.refresh()
        time.sleep(0.02)
    job.finish(Status.DONE)
    view.finish()
"""
WATCH = """(() => {
    const seen = window.seen = {messages: 0, bytes: 0, frames: 0, long: [], painted: null};
    const size = data => typeof data === "string" ? data.length : data.byteLength ?? data.size ?? 0;
    window.WebSocket = class extends WebSocket {
        constructor(...given) {
            super(...given);
            if (!this.url.includes("/channels")) return;
            this.addEventListener("message", event => { seen.messages += 1; seen.bytes += size(event.data); });
        }
    };
    const frame = () => { seen.frames += 1; requestAnimationFrame(frame); };
    requestAnimationFrame(frame);
    new PerformanceObserver(list => seen.long.push(...list.getEntries().map(each => each.duration)))
        .observe({type: "longtask"});
    const paint = () => requestAnimationFrame(() => setTimeout(() => { seen.painted ??= Date.now() / 1000; }));
    const isDue = () => seen.painted === null && document.querySelector(".na-panel [data-rank]");
    new MutationObserver(() => { if (isDue()) paint(); }).observe(document, {childList: true, subtree: true});
})()"""
BEGIN = "() => { Object.assign(seen, {messages: 0, bytes: 0, frames: 0, long: [], from: performance.now()}); }"
READ = "() => ({...seen, seconds: (performance.now() - seen.from) / 1000})"
_STEPS = """
from notebook_accel import notebook_launcher

def work(rounds, steps):
    import statistics, time, torch
    from notebook_accel import report
    from tqdm import tqdm

    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    optimizer = torch.optim.Adam(model.parameters())
    inputs, targets = torch.randn(128, 256), torch.randint(10, (128,))

    def step():
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    def measured(numbers, tell):
        inside, between, before = [], [], None
        everything, main = time.process_time_ns(), time.thread_time_ns()
        for number in numbers:
            began = time.thread_time_ns()
            if before is not None: between.append(began - before)
            loss = step()
            ended = time.thread_time_ns()
            inside.append(ended - began)
            tell(loss=loss, step=number)
            before = ended
        others = (time.process_time_ns() - everything) - (time.thread_time_ns() - main)
        return statistics.median(inside) / 1e9, statistics.median(between) / 1e9, others / steps / 1e9

    found = []
    for _ in range(rounds + 1):
        bare = measured(range(steps), lambda **_: None)
        seen = measured(tqdm(range(steps)), report)
        found.append([bare[0], seen[1] - bare[1], seen[2] - bare[2]])
    return found[1:]
"""


@dataclass(frozen=True)
class Watched:
    """What one job has cost while it was watched."""

    messages: float
    """To the browser, a second."""
    kilobytes: float
    """To the browser, a second."""
    kernel: float
    """Percent of a core."""
    frames: float
    """A second."""
    longest: float
    """Milliseconds of the longest task of the browser; 0 where none took 50."""
    painted: float
    """Seconds from the launch to the first ranks on the screen."""
    worst: list[tasks.Task]
    """The longest tasks of the browser, and what they were spent on."""

    def row(self, name: str) -> list[str]:
        numbers = (self.messages, self.kilobytes, self.kernel, self.frames, self.longest, 1000 * self.painted)
        return [name, *(f"{number:.0f}" for number in numbers)]


_WORST = 3
_HEAD = ["", "messages/s", "kB/s", "kernel CPU %", "frames/s", "longest task ms", "first paint ms"]


def watch(page: Page, call: str, ranks: int, seconds: float) -> Watched:
    """Runs a call whose job shows so many ranks and ends when the file `end` appears."""
    kernel = psutil.Process(int(said(page.run("print(os.getpid())"))))
    page.evaluate("() => { seen.painted = null; }")  # of the launch before
    cell = page.begin(f"launched = time.time()\n{call}")
    page.tab.wait_for_selector(".na-panel [data-rank]")
    for rank in (0, ranks - 1):
        cell.box(rank).and_(page.tab.locator("[data-phase=running]")).wait_for()
    page.evaluate(BEGIN)
    used = _cpu_seconds(kernel)
    with tasks.traced(page.tab) as busy:
        page.tab.wait_for_timeout(1000 * seconds)
        used = _cpu_seconds(kernel) - used
        seen: dict[str, Any] = page.evaluate(READ)
    page.screenshot(f"{ranks}")
    page.open_gate("end")
    cell.wait_for_end()
    took = seen["seconds"]
    return Watched(
        seen["messages"] / took,
        seen["bytes"] / took / 1000,
        100 * used / took,
        seen["frames"] / took,
        max(seen["long"], default=0.0),
        seen["painted"] - float(said(page.run("print(launched)"))),
        busy[:_WORST],
    )


def said(cell: Cell) -> str:
    """The last line that a cell has printed."""
    return cell.output.locator(".jp-RenderedText").last.inner_text().split()[-1]


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def in_browser(seconds: float) -> dict[str, Watched]:
    """Watches 64 ranks, and 256 that are pretended."""
    found = {}
    jobs: list[tuple[str, str, str, int]] = [
        ("64 ranks", _TRAIN, "notebook_launcher(train, num_processes=64)", 64),
        ("256 pretended", _TRAIN + _PRETEND, "pretend(256)", 256),
    ]
    with chromium.launch() as browser, Server("lab", [kernels.NEWEST]) as server:
        for name, code, call, ranks in jobs:
            context = browser.new_context(viewport=chromium.VIEWPORT)
            context.add_init_script(WATCH)
            notebook = server.new_notebook(name.replace(" ", "-"), name, kernels.NEWEST)
            page = Page(context, server, notebook, Path(".screenshots") / "live")
            page.run(code)
            page.run("notebook_launcher(int, num_processes=1)")  # after which the server of ranks is up
            found[name] = watch(page, call, ranks, seconds)
            context.close()
            server.end_kernels()
    return found


def in_rank(rounds: int) -> Spread:
    """A training step with a bar and a report, of the time of one without.

    By CPU time, and by what stands between the steps: two loops that are compared differ by more than is looked for.
    """
    with Kernel(timeout=300) as kernel:
        kernel.run(_STEPS)
        printed = kernel.run(
            f"import json; print(json.dumps(notebook_launcher(work, ({rounds}, 200), num_processes=1)[0]))"
        )
    steps, between, others = (Spread(values) for values in zip(*json.loads(printed), strict=True))
    ratio = Spread(
        [1 + (bar + rest) / step for step, bar, rest in zip(steps.values, between.values, others.values, strict=True)]
    )
    rows = [
        ["a step", steps.text(1e-6)],
        ["its bar and its report", between.text(1e-6, 1)],
        ["what the rank's other threads do meanwhile", others.text(1e-6, 1)],
        ["all, of the step", ratio.text(1, 4)],
    ]
    table("CPU time of a training step in a rank, µs", ["", ""], rows)
    return ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter")
    quick = parser.parse_args().quick
    warn_if_busy()
    if chromium.PATH is None:
        parser.error(chromium.MISSING)
    found = in_browser(5 if quick else 15)
    table("A job in JupyterLab", _HEAD, [watched.row(name) for name, watched in found.items()])
    worst = [[name, *task.row()] for name, watched in found.items() for task in watched.worst]
    table("The longest tasks of the browser, and what they were spent on, ms", ["", *tasks.HEAD], worst)
    step = in_rank(5 if quick else 25)
    progress.measure(quick=quick)
    many, most = found.values()
    print()
    goal("messages to the browser, 64 ranks", many.messages, 15, "/s")
    goal("kB to the browser, 64 ranks", many.kilobytes, 60, "/s")
    goal("kernel CPU, 64 ranks", many.kernel, 5, "%")
    goal("frames lost of 60 a second, 64 ranks", 60 - many.frames, 1)
    goal("longest task of the browser, 64 ranks", many.longest, 50, " ms")
    goal("longest task of the browser, 256 ranks", most.longest, 100, " ms")
    goal("first paint after the launch, 64 ranks", many.painted, 0.3, " s")
    goal("a training step, of one that nobody sees", step.median, 1.01)


if __name__ == "__main__":
    main()
