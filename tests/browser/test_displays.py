"""What ranks display, as a user sees it below the panel; and what the panel says of ranks that have no bars."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.page import Page

SHOW = """
import matplotlib.pyplot as plt
import pandas as pd
from notebook_accel.launch.show import line_merger, output

line_merger.MERGE_WINDOW = output.DISPLAY_WINDOW = 20  # a busy machine may start one rank late

def show():
    rank = int(os.environ["RANK"])
    print("before")
    display(pd.DataFrame({"loss": [0.5, 0.25]}))
    figure, axes = plt.subplots(figsize=(3, 1.5))
    axes.plot([rank, 2, 1])
    plt.show()
    display(pd.DataFrame({"rank": [rank], "accuracy": [0.9]}))
    handle = display("step 0", display_id=True)
    print("after")
    for step in range(1, 4):
        handle.update(f"step {step} of rank {rank}")
    wait_for("the end")
"""
IDLE = """
import sys, time

def idle():
    rank = int(os.environ["RANK"])
    if rank == 1:
        report(loss=0.5)
    time.sleep(1.5)
    wait_for("the end")
"""


def test_displays_of_ranks_are_in_order_and_labeled(own_page: Page) -> None:
    own_page.run(SHOW)
    cell = own_page.begin("notebook_launcher(show, num_processes=2)")
    expect(cell.output.get_by_text("step 3 of rank 1")).to_be_visible()
    expect(cell.output.locator("img")).to_have_count(2)
    expect(cell.output.locator("table.dataframe")).to_have_count(3)
    first, second = (cell.output.locator("img").nth(rank).bounding_box() for rank in (0, 1))
    assert first is not None
    assert second is not None
    assert (first["y"], first["x"] < second["x"]) == (second["y"], True)
    cell.output.locator("img").last.scroll_into_view_if_needed()
    own_page.screenshot("shown")
    texts = [text.strip() for text in cell.output.locator(".jp-OutputArea-child").all_inner_texts()]
    assert [text for text in texts if re.fullmatch(r"\[[0-9-]+\]", text)] == [], "no label is an output of its own"
    labels = cell.output.locator(".jp-OutputArea-output details > summary").all_inner_texts()
    assert [label for label in labels if label.startswith("[")] == ["[0]", "[1]", "[0]", "[1]"]
    expect(cell.output.get_by_text("[1] 'step 3 of rank 1'")).to_be_visible()
    own_page.open_gate("the end")
    cell.wait_for_end()
    outputs = own_page.save().cells[-1].outputs
    html = [str(output.get("data", {}).get("text/html", "")) for output in outputs]
    assert [each.count("<img src=") for each in html if "<img src=" in each] == [2]


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_ranks_without_bars_have_no_track(page: Page, theme: str) -> None:
    page.use_theme(theme)
    page.run(IDLE)
    cell = page.begin("notebook_launcher(idle, num_processes=2)")
    expect(cell.rank(0)).to_contain_text("running")
    expect(cell.rank(0).locator(".na-bar")).to_be_hidden()
    expect(cell.panel.locator(".na-overall")).to_be_hidden()
    page.screenshot("running")
    page.open_gate("the end")
    cell.wait_for_end()
