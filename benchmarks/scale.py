"""What a notebook's side of a launch costs when its ranks are many: 1,000 on 125 machines, and 64 that say much.

Kernel, bridge, wire, panel and browser are real; machines and ranks are pretended (see `pretended.py`).
"""

from __future__ import annotations

import argparse
import contextlib
import re
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pretended
import psutil
from common import CellError, Kernel, goal, table, warn_if_busy
from live import BEGIN, READ, WATCH, said

from tests.browser import chromium, kernels
from tests.browser.page import Cell, Page
from tests.browser.server import Server

MANY, FEW = 1000, 64
_BRIDGE = "cluster.bridge.main:main"
_SETUP = """
import os
from notebook_accel import attach, notebook_launcher, set_view

def train(): raise AssertionError("a pretended rank runs nothing")

def launch(ranks, nodes, rate, gates):
    env = {"PRETEND_GATES": gates, "PRETEND_RATE": str(rate)}
    notebook_launcher(train, num_processes=ranks, num_nodes=nodes, cluster="slurm", device="cpu", env=env)

set_view("widget")  # which draws whether a browser looks or not
print(os.getpid())
"""
_COUNT = "print(len(attach().metrics))"


@dataclass
class Launched:
    """What one launch has cost. Seconds."""

    first_line: float = float("nan")
    """From the call to the first line of the last rank, as a front end sees it."""
    starting: float = float("nan")
    """Processor time of kernel and bridge until then."""
    kernel: float = float("nan")
    """Percent of a core, in between."""
    bridge: float = float("nan")
    end: float = float("nan")
    """From the last rank's end to the cell's, or from the failure to the cell's error."""
    ending: float = float("nan")
    """Processor time of both for the end."""
    sent: int = 0
    """Metrics that the ranks have sent."""

    @property
    def driver(self) -> float:
        return self.kernel + self.bridge

    def row(self, name: str) -> list[str]:
        return [
            name,
            f"{self.first_line:.2f}",
            f"{self.starting:.2f}",
            f"{self.kernel:.1f}",
            f"{self.bridge:.1f}",
            f"{self.end:.2f}",
            f"{self.ending:.2f}",
        ]


_SEE_FAILURE = """() => {
    const paint = () => requestAnimationFrame(() => setTimeout(() => { seen.failed ??= Date.now() / 1000; }));
    const look = () => { if (document.querySelector(".na-panel [data-phase=failed]")) paint(); };
    new MutationObserver(look).observe(document, {attributes: true, childList: true, subtree: true});
}"""
_HEAD = ["", "first line s", "its CPU s", "kernel %", "bridge %", "end s", "its CPU s"]


class Driver:
    """The kernel's process and the bridge's."""

    def __init__(self, pid: int) -> None:
        self.kernel = psutil.Process(pid)
        self._at = (0.0, 0.0, 0.0)

    @property
    def bridge(self) -> psutil.Process | None:
        """`None` before the first launch."""
        return next((each for each in self.kernel.children() if _BRIDGE in " ".join(each.cmdline())), None)

    def begin(self) -> None:
        self._at = self._now()

    def used(self) -> tuple[float, float, float]:
        """Seconds since then: on the clock, of the kernel, of the bridge."""
        clock, kernel, bridge = (now - then for now, then in zip(self._now(), self._at, strict=True))
        return clock, kernel, bridge

    def _now(self) -> tuple[float, float, float]:
        return time.monotonic(), _cpu_seconds(self.kernel), _cpu_seconds(self.bridge)


def _cpu_seconds(process: psutil.Process | None) -> float:
    if process is None:
        return 0.0
    times = process.cpu_times()
    return float(times.user + times.system)


def launch(kernel: Kernel, driver: Driver, ranks: int, rate: float, seconds: float, *, fails: bool = False) -> Launched:
    """Launches ranks, watches them for so long, and lets them end or one of them fail."""
    found = Launched()
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        driver.begin()
        cell = kernel.begin(f"launch({ranks}, {ranks // pretended.CPUS}, {rate}, {folder!r})")
        messages = kernel.messages(cell)
        lines = 0
        for kind, content in messages:
            if kind == "error":
                raise CellError(content["evalue"])
            lines += _lines(content["text"]) if kind == "stream" else 0
            if lines == ranks:
                break
        found.first_line = time.monotonic() - began
        found.starting = sum(driver.used()[1:])
        time.sleep(1)  # in which every event is read at once
        driver.begin()
        time.sleep(seconds)
        clock, *used = driver.used()
        found.kernel, found.bridge = (100 * each / clock for each in used)
        driver.begin()
        gate = Path(folder, "fail" if fails else "end")
        gate.touch()
        error = [content["ename"] for kind, content in messages if kind == "error"]
        found.end = time.time() - (float(Path(folder, "failed").read_text()) if fails else gate.stat().st_mtime)
        found.ending = sum(driver.used()[1:])
        if error != (["RankError"] if fails else []):
            raise CellError(str(error))
        if not fails:
            found.sent = int(Path(folder, "sent").read_text())
    return found


def _lines(text: str) -> int:
    """How many ranks' first lines a text shows."""
    spans = re.findall(rf"^\[([\d,-]+)\] {pretended.LINE}$", text, re.MULTILINE)
    runs = [[int(end) for end in run.split("-")] for each in spans for run in each.split(",")]
    return sum(run[-1] - run[0] + 1 for run in runs)


@contextlib.contextmanager
def _usual_limits() -> Iterator[None]:
    """As many open files as most systems let a process have until it asks for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def in_kernel(seconds: float) -> None:
    with _usual_limits():
        kernel = Kernel(timeout=600)
    with kernel:
        driver = Driver(int(kernel.run(_SETUP)))
        before = driver.kernel.memory_info().rss
        cold = launch(kernel, driver, MANY, 1, 1)
        warm = launch(kernel, driver, MANY, 1, seconds)
        failed = launch(kernel, driver, MANY, 1, 1, fails=True)
        memory = driver.kernel.memory_info().rss - before
        few = launch(kernel, driver, FEW, 10, seconds)
        arrived = int(kernel.run(_COUNT).split()[-1])
    table(
        "Without a browser",
        _HEAD,
        [
            cold.row("1,000 ranks, the first time"),
            warm.row("again"),
            failed.row("again, and one fails"),
            few.row("64 ranks × 10 metrics/s"),
        ],
    )
    print(f"\n  the kernel has grown by {memory / 2**20:.0f} MiB; {few.sent} metrics sent, {arrived} arrived")
    print()
    goal("the driver's CPU, 1,000 ranks", warm.driver, 30, "%")
    goal("from the call to the last rank's first line, 1,000 ranks", warm.first_line, 5, " s")
    goal("from a rank's failure to the cell's error, 1,000 ranks", failed.end, 2.5, " s")
    goal("the driver's CPU, 64 ranks", few.driver, 10, "%")
    goal("metrics lost, 64 ranks", few.sent - arrived, 0)


def in_browser(seconds: float) -> None:
    """The 1,000 in JupyterLab in chromium."""
    with contextlib.ExitStack() as stack:
        browser = stack.enter_context(chromium.launch())
        with _usual_limits():
            server = stack.enter_context(Server("lab", [kernels.NEWEST]))
        context = browser.new_context(viewport=chromium.VIEWPORT)
        context.add_init_script(WATCH)
        notebook = server.new_notebook("many", "1,000 pretended ranks", kernels.NEWEST)
        page = Page(context, server, notebook, Path(".screenshots") / "scale")
        driver = Driver(int(said(page.run(_SETUP))))
        seen, used = _watch(page, driver, seconds)
        painted = _fail(page)
    took = seen["seconds"]
    kernel, bridge = (100 * each / took for each in used)
    frames, longest = seen["frames"] / took, max(seen["long"], default=0.0)
    messages, kilobytes = seen["messages"] / took, seen["bytes"] / took / 1000
    table(
        "1,000 ranks in JupyterLab",
        ["messages/s", "kB/s", "kernel %", "bridge %", "frames/s", "longest task ms"],
        [[f"{each:.1f}" for each in (messages, kilobytes, kernel, bridge, frames, longest)]],
    )
    print()
    goal("the driver's CPU, 1,000 ranks in a browser", kernel + bridge, 30, "%")
    goal("messages to the browser, 1,000 ranks", messages, 15, "/s")
    goal("kB to the browser, 1,000 ranks", kilobytes, 60, "/s")
    goal("from a rank's failure to the panel, 1,000 ranks", painted, 1.5, " s")


def _watch(page: Page, driver: Driver, seconds: float) -> tuple[dict[str, Any], tuple[float, float]]:
    """What the browser has seen of a launch, and the processor time of kernel and bridge meanwhile."""
    with tempfile.TemporaryDirectory() as gates:
        cell = _begin(page, gates)
        page.tab.wait_for_timeout(1000)
        page.evaluate(BEGIN)
        driver.begin()
        page.tab.wait_for_timeout(1000 * seconds)
        _, kernel, bridge = driver.used()
        seen: dict[str, Any] = page.evaluate(READ)
        page.screenshot(str(MANY))
        Path(gates, "end").touch()
        cell.wait_for_end()
    return seen, (kernel, bridge)


def _fail(page: Page) -> float:
    """Seconds from a rank's failure to the frame that shows it."""
    with tempfile.TemporaryDirectory() as gates:
        cell = _begin(page, gates)
        page.tab.wait_for_timeout(3000)  # until all that comes of the start is drawn
        page.evaluate(_SEE_FAILURE)
        Path(gates, "fail").touch()
        cell.wait_for_end()
        return float(page.evaluate("() => seen.failed")) - float(Path(gates, "failed").read_text())


def _begin(page: Page, gates: str) -> Cell:
    cell = page.begin(f"launch({MANY}, {MANY // pretended.CPUS}, 1, {gates!r})")
    for rank in (0, MANY - 1):
        cell.box(rank).and_(page.tab.locator("[data-phase=running]")).wait_for()
    return cell


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter")
    quick = parser.parse_args().quick
    warn_if_busy()
    if chromium.PATH is None:
        parser.error(chromium.MISSING)
    with pretended.slurm():
        in_kernel(10 if quick else 30)
        in_browser(10 if quick else 30)


if __name__ == "__main__":
    main()
