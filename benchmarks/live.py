"""What it costs to see a job live: messages to the browser, the kernel's time, the browser's frames.

Kernel, server, browser, and the 64 ranks are real: JupyterLab in chromium, and bars that move faster than a rank tells.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
from common import goal, table

from tests.browser import chromium, kernels
from tests.browser.page import Cell, Page
from tests.browser.server import Server

RANKS = 64
TRAIN = """
import os, time
from tqdm.auto import tqdm
from notebook_accel import notebook_launcher, report

def train(pause=0.05):
    bars = [tqdm(total=total, desc=name) for name, total in (("epoch", 200), ("batch", 2000), ("sample", 20000))]
    step = 0
    while not os.path.exists("end"):
        step += 1
        for factor, bar in zip((1, 10, 100), bars):
            bar.update(factor if bar.n < bar.total else -bar.n)
        if step % round(1 / pause) == 0:
            report(loss=1 / step, step=step)
        time.sleep(pause)
"""
_WATCH = """(() => {
    const seen = window.seen = {messages: 0, bytes: 0, frames: 0, long: [], painted: null};
    const size = data => typeof data === "string" ? data.length : data.byteLength ?? data.size ?? 0;
    window.WebSocket = class extends WebSocket {
        constructor(...given) {
            super(...given);
            if (!this.url.includes("/channels")) return;
            this.addEventListener("message", event => { seen.messages += 1; seen.bytes += size(event.data); });
        }
    };
    const request = window.fetch;
    window.fetch = async (...given) => {
        const response = await request(...given);
        if (response.url.includes("/notebook-accel/")) {
            seen.messages += 1;
            seen.bytes += (await response.clone().arrayBuffer()).byteLength;
        }
        return response;
    };
    const frame = () => { seen.frames += 1; requestAnimationFrame(frame); };
    requestAnimationFrame(frame);
    new PerformanceObserver(list => seen.long.push(...list.getEntries().map(each => each.duration)))
        .observe({type: "longtask"});
    const paint = () => requestAnimationFrame(() => setTimeout(() => { seen.painted ??= Date.now() / 1000; }));
    const isDue = () => seen.painted === null && document.querySelector(".na-panel [data-rank='LAST']");
    new MutationObserver(() => { if (isDue()) paint(); }).observe(document, {childList: true, subtree: true});
})()""".replace("LAST", str(RANKS - 1))
_BEGIN = "() => { Object.assign(seen, {messages: 0, bytes: 0, frames: 0, long: [], from: performance.now()}); }"
_READ = "() => ({...seen, seconds: (performance.now() - seen.from) / 1000})"


def measure(*, quick: bool) -> None:
    with chromium.launch() as browser, Server("lab", [kernels.NEWEST]) as server:
        context = browser.new_context(viewport=chromium.VIEWPORT)
        context.add_init_script(_WATCH)
        notebook = server.new_notebook("live", f"{RANKS} ranks", kernels.NEWEST)
        page = Page(context, server, notebook, Path(".screenshots") / "live")
        page.run(TRAIN)
        page.run("notebook_launcher(int, num_processes=1)")  # after which the server of ranks is up
        seen, kernel, others = watch(page, server.pid, 5 if quick else 15)
        launched = float(said(page.run("print(launched)")))
    took = seen["seconds"]
    messages, kilobytes, frames = seen["messages"] / took, seen["bytes"] / took / 1000, seen["frames"] / took
    longest, painted = max(seen["long"], default=0.0), seen["painted"] - launched
    head = ["", "messages/s", "kB/s", "kernel CPU %", "server CPU %", "frames/s", "longest task ms", "first paint ms"]
    numbers = (messages, kilobytes, kernel, others, frames, longest, 1000 * painted)
    table("A job in JupyterLab", head, [[f"{RANKS} ranks", *(f"{number:.0f}" for number in numbers)]])
    print()
    goal(f"messages to the browser, {RANKS} ranks", messages, 15, "/s")
    goal(f"kB to the browser, {RANKS} ranks", kilobytes, 60, "/s")
    goal(f"kernel CPU, {RANKS} ranks", kernel, 5, "%")
    goal(f"frames lost of 60 a second, {RANKS} ranks", 60 - frames, 1)
    goal(f"longest task of the browser, {RANKS} ranks", longest, 50, " ms")
    goal(f"first paint after the launch, {RANKS} ranks", painted, 0.3, " s")


def watch(page: Page, server: int, seconds: float) -> tuple[dict[str, Any], float, float]:
    """Launches, and watches for so long.

    Returns what the page has seen, and percent of a core: of the kernel, and of Jupyter's server with its reader.
    """
    kernel = psutil.Process(int(said(page.run("print(os.getpid())"))))
    children = [each for each in psutil.Process(server).children() if each != kernel]
    cell = page.begin(f"launched = time.time()\nnotebook_launcher(train, num_processes={RANKS})")
    for rank in (0, RANKS - 1):
        cell.box(rank).and_(page.tab.locator("[data-phase=running]")).wait_for()
    page.evaluate(_BEGIN)
    before = [used(kernel), used(psutil.Process(server), *children)]
    page.tab.wait_for_timeout(1000 * seconds)
    after = [used(kernel), used(psutil.Process(server), *children)]
    seen: dict[str, Any] = page.evaluate(_READ)
    page.screenshot(str(RANKS))
    page.open_gate("end")
    cell.wait_for_end()
    kernels, others = (100 * (now - then) / seen["seconds"] for now, then in zip(after, before, strict=True))
    return seen, kernels, others


def used(*processes: psutil.Process) -> float:
    """CPU seconds."""
    return sum(sum(each.cpu_times()[:2]) for each in processes)


def said(cell: Cell) -> str:
    """The last line that a cell has printed."""
    return cell.output.locator(".jp-RenderedText").last.inner_text().split()[-1]
