"""Draw the pictures of the README and the documentation, in JupyterLab in a real browser.

.venv/bin/python scripts/picture.py          # all of them
.venv/bin/python scripts/picture.py stall  # one
"""

import io
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from PIL import Image, ImageOps
from playwright.sync_api import ViewportSize

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser import chromium, kernels  # noqa: E402
from tests.browser.page import Page  # noqa: E402
from tests.browser.server import Server  # noqa: E402

EVERY = 300
"""Milliseconds from one picture to the next."""
LINGER = 3000
"""Milliseconds for which the last one stays."""
DATA = """
import time
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm.auto import tqdm
from notebook_accel import Accelerator, notebook_launcher

digits = load_digits()
data = TensorDataset(torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target))

def make():
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    return model, torch.optim.SGD(model.parameters(), lr=0.3), DataLoader(data, batch_size=16, shuffle=True)

def criterion(scores, labels):
    time.sleep(0.1)  # it would be over before it is seen
    return nn.functional.cross_entropy(scores, labels)

def warm_up():
    accelerator = Accelerator()
    accelerator.prepare(*make())

notebook_launcher(warm_up, num_processes=4)
"""
TRAIN = """
def train(epochs=4):
    accelerator = Accelerator()
    model, optimizer, loader = accelerator.prepare(*make())
    for epoch in tqdm(range(epochs), desc="epoch"):
        for images, labels in tqdm(loader, desc="batch", leave=False):
            loss = criterion(model(images), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            accelerator.log({"loss": loss})
"""
STALL = """
def evaluate():
    accelerator = Accelerator()
    for step in tqdm(range(40), desc="step"):
        time.sleep(0.1)
        if step == 20 and accelerator.is_main_process:
            best = accelerator.gather(torch.tensor([0.97]))  # only rank 0 gets here
        accelerator.wait_for_everyone()

notebook_launcher(evaluate, num_processes=2, stall_after=3)
"""


def main(names: list[str]) -> None:
    """Take the pictures of some scenes, or of all, and write those of each as one animated file."""
    if chromium.PATH is None:
        sys.exit(chromium.MISSING)
    if unknown := set(names) - set(SCENES):
        sys.exit(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(SCENES)}")
    with (
        tempfile.TemporaryDirectory() as folder,
        chromium.launch() as browser,
        Server("lab", [kernels.NEWEST]) as server,
    ):
        for name in names or SCENES:
            scene = SCENES[name]
            context = browser.new_context(viewport=scene.viewport)
            notebook = server.new_notebook(name, scene.title, kernels.NEWEST)
            page = Page(context, server, notebook, Path(folder))
            page.tab.set_viewport_size(scene.viewport)
            page.evaluate("window.jupyterapp.commands.execute('application:toggle-left-area')")
            page.run(DATA)
            pictures = [Image.open(io.BytesIO(each)).convert("RGB") for each in scene.take(page)]
            context.close()
            write(ROOT / "docs" / f"{name}.webp", pictures)


def tour(page: Page) -> Iterator[bytes]:
    """Four ranks that train, beside the sidebar; then a stall."""
    page.run(TRAIN)
    page.clear()  # of its cells, not of its variables
    page.evaluate("window.jupyterapp.commands.execute('notebook-accel:show-jobs')")
    cell = page.begin("notebook_launcher(train, num_processes=4)")
    cell.output.filter(has_text="/s").wait_for()  # a bar moves
    while not cell.ended:
        yield page.tab.screenshot()
        page.tab.wait_for_timeout(EVERY)
    cell.wait_for("done")
    yield page.tab.screenshot()
    page.clear()
    yield from _stalled(page, page.tab.screenshot)


def stall(page: Page) -> Iterator[bytes]:
    """A rank that waits for ranks that never come, and what the panel says of it."""
    yield from _stalled(
        page, lambda: page.last.output.locator("xpath=ancestor::*[contains(@class, 'jp-CodeCell')]").screenshot()
    )


def _stalled(page: Page, picture: Callable[[], bytes]) -> Iterator[bytes]:
    cell = page.begin(STALL)
    cell.output.filter(has_text="/s").wait_for()
    report = cell.output.filter(has_text="each other forever")
    lingering = 8
    while lingering:
        yield picture()
        page.tab.wait_for_timeout(EVERY)
        lingering -= report.count()
    cell.stop.click()
    cell.wait_for_end()


class Scene(NamedTuple):
    """What is shown."""

    title: str
    viewport: ViewportSize
    take: Callable[[Page], Iterator[bytes]]
    """Runs cells, and yields pictures of them."""


SCENES = {
    "panel": Scene("Handwritten digits", {"width": 1280, "height": 800}, tour),
    "stall": Scene("A stall", {"width": 900, "height": 1300}, stall),
}


def write(file: Path, pictures: list[Image.Image]) -> None:
    """All of them in one animated file."""
    size = max(each.width for each in pictures), max(each.height for each in pictures)
    first, *rest = [ImageOps.pad(each, size, color="white", centering=(0, 0)) for each in pictures]
    durations = [EVERY] * len(rest) + [LINGER]
    first.save(file, save_all=True, append_images=rest, duration=durations, loop=0, quality=70, method=3)
    print(f"{file.relative_to(ROOT)}: {len(pictures)} pictures, {file.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main(sys.argv[1:])
