"""What the extension of JupyterLab costs: opening a page, and the sidebar with 20 jobs, two of them with 64 ranks.

Two servers take turns, one with the extension and one without. Servers, jobs, reader process, and browser are real.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from common import Kernel, Spread, goal, table
from live import RANKS, TRAIN
from playwright.sync_api import BrowserContext, Page

from tests.browser import chromium
from tests.browser.server import Server

ENDED, RUNNING = 18, 2
_END = """
def short():
    for step in range(300):
        report(loss=1 / (1 + step), step=step)
"""
_HERE = str(Path(__file__).parent)
_PATIENCE = 120_000
_RESTORED = "async () => { await window.jupyterapp.restored; return performance.now(); }"
_SHOW = "window.jupyterapp.commands.execute('notebook-accel:show-jobs')"
_WITHOUT = {"disabledExtensions": {"notebook-accel": True}}


@dataclass(frozen=True)
class Watched:
    """What a server has done while a page was open."""

    server: float
    """Percent of a core of the server's own process."""
    reader: float
    """That of the processes that it has started."""
    browser: float
    """Percent of the time in which the page's main thread was busy."""
    worst: float
    """The longest delay of the server's event loop, in milliseconds."""
    p99: float
    """The delay that one in a hundred exceeds."""
    memory: float
    """Megabytes that the server and what it has started don't share with others."""

    def row(self, name: str) -> list[str]:
        return [
            name,
            *(f"{number:.1f}" for number in (self.server, self.reader, self.browser)),
            *(f"{number:.1f}" for number in (self.worst, self.p99, self.memory)),
        ]


_HEAD = ["", "server CPU %", "reader CPU %", "page busy %", "worst delay ms", "p99 delay ms", "memory MB"]


@contextlib.contextmanager
def jobs() -> Iterator[str]:
    """Twenty jobs, two of which run in this context. Yields the folder where they are recorded."""
    with Kernel() as kernel:
        kernel.run(TRAIN + _END)
        kernel.run(f"for _ in range({ENDED}): notebook_launcher(short, num_processes=4)")
        job = f"notebook_launcher(train, (0.25,), {RANKS}, block=False)"  # as often as so many ranks send
        kernel.run(f"jobs = [{job} for _ in range({RUNNING})]")
        yield kernel.notebook.state


@contextlib.contextmanager
def served(state: str, *, extension: bool) -> Iterator[Server]:
    """A server of JupyterLab, with or without the extension."""
    extensions = {"event_loop_probe": True} | ({} if extension else {"notebook_accel.jupyter": False})
    with tempfile.TemporaryDirectory() as config:
        if not extension:
            page = Path(config, "labconfig", "page_config.json")
            page.parent.mkdir()
            page.write_text(json.dumps(_WITHOUT))
        environment = {"PYTHONPATH": _HERE, "NOTEBOOK_ACCEL_STATE": state, "JUPYTER_CONFIG_PATH": config}
        options = [f"--ServerApp.jpserver_extensions={extensions}"]
        with Server("lab", [], options=options, environment=environment) as server:
            yield server


def opened(context: BrowserContext, server: Server) -> tuple[Page, float]:
    """A page with JupyterLab, and the seconds that it took to open."""
    page = chromium.only_tab(context)
    page.set_default_timeout(_PATIENCE)
    page.goto("about:blank")
    page.goto(f"{server.url}/lab/tree?token={server.token}&reset")
    page.wait_for_function("window.jupyterapp !== undefined")
    return page, page.evaluate(_RESTORED) / 1000


def watch(page: Page, server: Server, seconds: float) -> Watched:
    """Measures for so many seconds."""
    process = psutil.Process(server.pid)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    delays(server)
    before, began = _used(process), time.monotonic()
    busy = _busy(session.send("Performance.getMetrics"))
    page.wait_for_timeout(1000 * seconds)
    took, after = time.monotonic() - began, _used(process)
    busy = _busy(session.send("Performance.getMetrics")) - busy
    late = [1000 * each for each in delays(server)]
    everything = [process, *process.children(recursive=True)]
    return Watched(
        server=100 * (after[0] - before[0]) / took,
        reader=100 * (after[1] - before[1]) / took,
        browser=100 * busy / took,
        worst=max(late),
        p99=statistics.quantiles(late, n=100)[-1],
        memory=sum(each.memory_full_info().uss for each in everything) / 1e6,
    )


def delays(server: Server) -> list[float]:
    """The delays of its event loop since the last call, in seconds."""
    headers = {"Authorization": f"token {server.token}"}
    with urllib.request.urlopen(urllib.request.Request(f"{server.url}/event-loop-probe", headers=headers)) as answer:
        return list(json.loads(answer.read())["delays"])


def _used(process: psutil.Process) -> tuple[float, float]:
    """The CPU seconds of a process, and of those that it has started."""
    own, *others = (
        sum(each.cpu_times()[:2]) for each in (process, *process.children(recursive=True)) if each.is_running()
    )
    return own, sum(others)


def _busy(metrics: dict[str, list[dict[str, float]]]) -> float:
    return next(each["value"] for each in metrics["metrics"] if each["name"] == "TaskDuration")


def measure(*, quick: bool) -> None:
    rounds, seconds = (3, 10) if quick else (10, 60)
    times: dict[str, list[float]] = {"without": [], "with": []}
    with (
        jobs() as state,
        served(state, extension=False) as plain,
        served(state, extension=True) as extended,
        chromium.launch() as browser,
    ):
        contexts = {name: browser.new_context(viewport=chromium.VIEWPORT) for name in times}
        servers = {"without": plain, "with": extended}
        for turn in range(rounds + 1):
            for name in sorted(times, reverse=bool(turn % 2)):
                page, took = opened(contexts[name], servers[name])
                if turn:  # the first has no cache
                    times[name].append(took)
                page.goto("about:blank")
        kernels = len(extended.ask("GET", "kernels"))
        page, _ = opened(contexts["without"], plain)
        page.wait_for_timeout(5000)
        without = watch(page, plain, seconds)
        page.goto("about:blank")
        page, _ = opened(contexts["with"], extended)
        page.evaluate(_SHOW)
        metrics = "document.querySelectorAll('.na-lab-job .na-lab-metric').length"
        page.wait_for_function(f"{metrics} === {ENDED + RUNNING}")
        sidebar = watch(page, extended, seconds)
    more = Spread(times["with"]).beyond(Spread(times["without"]))
    rows = [[name, Spread(found).text()] for name, found in times.items()]
    table("Opening JupyterLab, ms", ["", "until it is restored"], [*rows, ["difference", more.text()]])
    table("A page that is open", _HEAD, [without.row("without the extension"), sidebar.row("with the sidebar")])
    print()
    goal("opening JupyterLab, more than without", 1000 * more.median, 100, " ms")
    goal("kernels that opening it has started", kernels, 0)
    used = sidebar.server + sidebar.reader - without.server - without.reader
    goal("server and reader CPU, 20 jobs, two of 64 ranks", used, 2, "%")
    goal("worst delay of the server's event loop", sidebar.worst, 20, " ms")
    goal("memory of server and reader, more than without", sidebar.memory - without.memory, 30, " MB")
