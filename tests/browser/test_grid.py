"""More ranks than rows can show."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.page import Page

RANKS = 64
TRAIN = """
def train():
    rank = int(os.environ["RANK"])
    print(f"rank {rank} has begun")
    for step in tqdm(range(100), desc="step", mininterval=0):
        if step == 30 + rank // 6 or rank == 13 and step == 2:
            wait_for("go on")
"""


def test_64_ranks_are_a_grid_that_unfolds(page: Page) -> None:
    page.run(TRAIN)
    cell = page.begin(f"notebook_launcher(train, num_processes={RANKS})")
    expect(cell.box(RANKS - 1)).to_have_accessible_name(f"Rank {RANKS - 1}: running, 40%")
    expect(cell.box(13)).to_have_accessible_name("Rank 13: running, 2%, behind")
    page.screenshot("running")
    cell.box(13).click()
    expect(cell.rank(13)).to_contain_text("step 2/100")
    expect(cell.panel).to_contain_text("rank 13 has begun")
    page.screenshot("unfolded")
    page.open_gate("go on")
    cell.wait_for_end()
    expect(cell.panel).to_contain_text("done")


@pytest.mark.front_ends
def test_arrow_keys_move_between_ranks_and_not_between_cells(page: Page) -> None:
    page.run(TRAIN)
    cell = page.begin("notebook_launcher(train, num_processes=17)")
    expect(cell.box(16)).to_have_accessible_name("Rank 16: running, 32%")
    page.evaluate("window.jupyterapp.shell.currentWidget.content.mode = 'command'")
    cell.box(0).focus()
    page.tab.keyboard.press("ArrowRight")
    expect(cell.box(1)).to_be_focused()
    page.tab.keyboard.press("End")
    expect(cell.box(16)).to_be_focused()
    page.tab.keyboard.press("Enter")
    expect(cell.rank(16)).to_contain_text("step 32/100")
    whole = "element => { element.textContent = '100%'; return element.scrollWidth <= element.clientWidth; }"
    assert cell.box(16).locator(".na-cell-amount").evaluate(whole), "the progress of a rank is cut off"
    page.open_gate("go on")
    cell.wait_for_end()
