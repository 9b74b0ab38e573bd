"""The charts of the panel: what they state, and what a user does with one that is enlarged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.page import Cell, Page
from tests.browser.test_looks import is_accessible

TRAIN = """
import math

def train():
    rank = int(os.environ["RANK"])
    for step in range(4000):  # more than a chart is wide
        loss = math.nan if 600 <= step < 640 else 50.0 if step == 300 else 10 / (1 + step / 100) + rank
        report({"loss": loss, "accuracy": step / 4000}, step=step)
    wait_for("end")
"""
EARLIER = """
def train():
    for step in range(100):
        report(loss=5.0, step=step)
"""


def begin(page: Page) -> Cell:
    page.run(TRAIN)
    cell = page.begin("notebook_launcher(train, num_processes=2)")
    for fact in ("last at step 3999", "max 50 at step 300", "80 NaN, first at step 600"):
        expect(chart(cell, "loss")).to_have_attribute("title", re.compile(re.escape(fact)))
    return cell


def chart(cell: Cell, name: str) -> Locator:
    return cell.panel.locator(f'.na-chart[data-metric="{name}"]')


@pytest.mark.front_ends
def test_a_chart_is_enlarged_while_its_cell_runs(page: Page) -> None:
    """Long: two launches, the first of which is compared with, and all controls of a chart."""
    page.run(EARLIER)
    page.run("notebook_launcher(train, num_processes=1)")
    cell = begin(page)
    expect(chart(cell, "loss").locator("canvas")).to_be_visible()
    chart(cell, "loss").get_by_role("button", name="Enlarge loss").click()
    enlarged = cell.panel.locator(".na-enlarged")
    expect(enlarged.locator(".na-chart-status")).to_contain_text("several steps")  # the kernel has answered
    plot = enlarged.get_by_role("slider", name="Values of loss at a step")
    plot.press("Home")
    for _ in range(6):
        plot.press("+")  # the range is halved, until each step is a point
    expect(enlarged.locator(".na-chart-status")).to_be_empty()
    plot.press("Home")
    plot.press("ArrowRight")
    step = int(plot.get_attribute("aria-valuemin") or "") + 1
    least = 10 / (1 + step / 100)
    said = f"step {step}, loss {least + 0.5:.4g} ({least:.4g} to {least + 1:.4g})"
    expect(plot).to_have_attribute("aria-valuetext", said)
    enlarged.get_by_role("button", name="Each rank").click()
    enlarged.get_by_label("Compare with an earlier job").select_option(index=1)
    said = f"step {step}, loss, earlier 5, rank 0 {least:.4g}, rank 1 {least + 1:.4g}"
    expect(plot).to_have_attribute("aria-valuetext", said)
    enlarged.get_by_label("Add a metric").select_option("accuracy")
    expect(enlarged.locator(".na-keys")).to_contain_text("accuracy")
    enlarged.get_by_role("button", name="Log").click()
    enlarged.get_by_label("Smoothing").fill("0.5")
    page.screenshot("enlarged")
    is_accessible(page)
    enlarged.get_by_role("button", name="Reset zoom").click()
    with page.tab.expect_download() as waiting:
        enlarged.get_by_role("button", name="CSV").click()
    rows = Path(waiting.value.path()).read_text().splitlines()
    assert sum(row.startswith("loss,,0,") for row in rows) == 4000
    with page.tab.expect_download() as waiting:
        enlarged.get_by_role("button", name="PNG").click()
    assert waiting.value.suggested_filename == "loss-accuracy.png"
    assert not cell.ended
    enlarged.press("Escape")
    expect(chart(cell, "loss").get_by_role("button", name="Enlarge loss")).to_be_focused()
    page.open_gate("end")
    cell.wait_for_end()


def test_the_user_chooses_which_charts_to_see(page: Page) -> None:
    cell = begin(page)
    cell.panel.get_by_text("Choose charts").click()
    cell.panel.get_by_role("button", name="Move accuracy up").click()
    expect(cell.panel.locator(".na-chart").first).to_contain_text("accuracy")
    cell.panel.get_by_role("checkbox", name="accuracy").uncheck()
    expect(chart(cell, "accuracy")).to_have_count(0)
    page.screenshot("chosen")
    is_accessible(page)
    cell.panel.get_by_role("checkbox", name="accuracy").check()
    page.open_gate("end")
    cell.wait_for_end()
