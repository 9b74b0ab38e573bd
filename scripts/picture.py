"""Draw docs/panel.webp, the picture in the README: four ranks that train, in JupyterLab in a real browser.

.venv/bin/python scripts/picture.py
"""

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageOps
from playwright.sync_api import Locator

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser import chromium, kernels  # noqa: E402
from tests.browser.page import Cell, Page  # noqa: E402
from tests.browser.server import Server  # noqa: E402

TARGET = ROOT / "docs" / "panel.webp"
VIEWPORT = {"width": 900, "height": 1300}
EVERY = 300
"""Milliseconds from one picture to the next."""
LINGER = 3000
"""Milliseconds for which the last one stays."""
DATA = """
import time
import torch
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

notebook_launcher(train, num_processes=4)
"""


def main() -> None:
    """Run the cell, take pictures while it runs, and write them as one."""
    if chromium.PATH is None:
        sys.exit(chromium.MISSING)
    with (
        tempfile.TemporaryDirectory() as folder,
        chromium.launch() as browser,
        Server("lab", [kernels.NEWEST]) as server,
    ):
        context = browser.new_context(viewport=VIEWPORT)
        notebook = server.new_notebook("digits", "Four ranks", kernels.NEWEST)
        page = Page(context, server, notebook, Path(folder))
        page.evaluate("window.jupyterapp.commands.execute('application:toggle-left-area')")
        page.run(DATA)
        pictures = take(page, page.begin(TRAIN))
    write(pictures)
    print(f"{TARGET.relative_to(ROOT)}: {len(pictures)} pictures, {TARGET.stat().st_size / 1e6:.2f} MB")


def take(page: Page, cell: Cell) -> list[Image.Image]:
    """Pictures of a cell and its panel until it has ended, and one of what stays."""
    whole = cell.output.locator("xpath=ancestor::*[contains(@class, 'jp-CodeCell')]")
    found = []
    cell.output.filter(has_text="/s").wait_for()  # a bar moves
    while not cell.ended:
        found.append(picture(whole))
        page.tab.wait_for_timeout(EVERY / 2)  # the picture itself takes about as long
    cell.wait_for("done")
    return [*found, picture(whole)]


def picture(cell: Locator) -> Image.Image:
    """What a cell shows now."""
    return Image.open(io.BytesIO(cell.screenshot())).convert("RGB")


def write(pictures: list[Image.Image]) -> None:
    """All of them in one animated file."""
    size = max(each.width for each in pictures), max(each.height for each in pictures)
    first, *rest = [ImageOps.pad(each, size, color="white", centering=(0, 0)) for each in pictures]
    durations = [EVERY] * len(rest) + [LINGER]
    first.save(TARGET, save_all=True, append_images=rest, duration=durations, loop=0, quality=70, method=3)


if __name__ == "__main__":
    main()
