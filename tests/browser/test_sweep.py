"""The board of a sweep, in each theme."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.page import Page
from tests.browser.test_looks import is_accessible

TRAIN = """
from notebook_accel import sweep

def train(lr, wd):
    for step in range(20):
        report({"val/loss": lr * 10 + wd / (step + 1)}, step=step)
    if lr == 0.1:
        wait_for("the end")
        raise ValueError("diverged")
"""


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_the_board_of_a_sweep_can_be_read_in_each_theme(page: Page, theme: str) -> None:
    page.use_theme(theme)
    page.run(TRAIN)
    cell = page.begin("runs = sweep(train, {'lr': [0.001, 0.01, 0.1], 'wd': [0.1]}, at_once=2)")
    board = cell.output.locator("table").first
    expect(board.locator("tr").nth(3)).to_contain_text("running")
    expect(board.locator("tr").nth(2)).to_contain_text("done")
    page.screenshot("running")
    page.open_gate("the end")
    expect(board.locator("tr").nth(3)).to_contain_text("ValueError: diverged")
    is_accessible(page)
    board.get_by_role("button", name="Open the panel of trial 1").click()
    expect(page.tab.get_by_role("tabpanel", name="train lr=0.01 wd=0.1")).to_contain_text("val/loss 0.105")
    page.screenshot("opened")
    page.evaluate("window.jupyterapp.shell.currentWidget.close()")
    drawn = page.begin("runs.parallel_coordinates()")
    expect(drawn.output.locator("img")).to_be_visible()
    is_accessible(page)
    page.screenshot("ended")
