"""Themes, narrow cells, and what a screen reader finds."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.browser.page import Cell, Page
from tests.live_notebook import wait_until

TRAIN = """
def train():
    rank = int(os.environ["RANK"])
    with tqdm(total=10, desc="epoch of training", mininterval=0) as bar:
        bar.update(2 if rank == 1 else 8)  # which leaves rank 1 behind
        report({"train/loss": 0.5, "train/accuracy": 0.25, "validation/loss_of_the_part_that_is_held_out": 0.75})
        wait_for("the end")
        if rank == 1:
            raise ValueError("no more batches")
"""

_SHOWN = """node => [...node.children].filter(
    pair => pair.getBoundingClientRect().bottom <= node.getBoundingClientRect().bottom + 2
).length"""
"""How many metrics of a row there is room for."""


def is_accessible(page: Page) -> None:
    """Axe finds nothing in what is ours: roles, names, contrast (AA)."""
    found = Axe().run(page.tab, context=".jp-Cell:last-child .jp-OutputArea-child:first-child .jp-OutputArea-output")
    assert not found.violations_count, found.generate_report()
    assert found.response["passes"], "axe has looked at nothing"


_OVERFLOWING = """root => {
    const right = root.getBoundingClientRect().right + 1;
    const sticksOut = node => node.getBoundingClientRect().width && node.getBoundingClientRect().right > right;
    const isCut = node => node.clientWidth && node.scrollWidth > node.clientWidth + 1
        && getComputedStyle(node).overflowX !== "visible" && !node.matches("pre, input, .na-unseen, .na-memory");
    return [...root.querySelectorAll("*")].filter(node => sticksOut(node) || isCut(node))
        .map(node => `${node.tagName} ${node.className}: ${node.textContent.slice(0, 60)}`);
}"""
"""What lies beyond the right edge, or is cut off within it. The text of a field can be scrolled."""


def fits(cell: Cell) -> None:
    """Waits until nothing of its panel is cut off: charts follow a frame after a change of the width."""

    def overflowing() -> list[str]:
        found: list[str] = cell.panel.evaluate(_OVERFLOWING)
        return found

    wait_until(lambda: not overflowing(), timeout=10, what=lambda: f"it does not fit: {overflowing()}")


def begin(page: Page) -> Cell:
    page.run(TRAIN)
    cell = page.begin("notebook_launcher(train, num_processes=3)")
    for rank in range(3):
        expect(cell.rank(rank)).to_contain_text("train/accuracy")
    return cell


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_it_can_be_read_in_each_theme(page: Page, theme: str) -> None:
    page.tab.set_viewport_size({"width": 1600, "height": 900})
    page.use_theme(theme)
    cell = begin(page)
    cell.rank(0).locator(".na-toggle").click()
    pairs = cell.rank(0).locator(".na-all-values > .na-pair")
    expect(pairs.nth(2)).to_contain_text("held_out 0.75")
    assert pairs.evaluate_all("pairs => pairs.every(pair => pair.scrollWidth <= pair.clientWidth)"), (
        "one covers another"
    )
    values = cell.rank(1).locator(".na-values")
    assert values.evaluate(_SHOWN) >= 2, "a wide row has room for more than one metric"
    is_accessible(page)
    page.screenshot("running")
    page.open_gate("the end")
    cell.wait_for_end()
    expect(cell.panel).to_contain_text("failed")
    is_accessible(page)


def test_a_narrow_cell_has_all_of_it(page: Page) -> None:
    page.tab.set_viewport_size({"width": 640, "height": 900})
    cell = begin(page)
    fits(cell)
    bar = cell.rank(1).get_by_role("progressbar").bounding_box()
    assert bar is not None
    assert bar["width"] > 40, "its bars are hardly to be seen"
    page.tab.set_viewport_size({"width": 900, "height": 900})
    cell.rank(1).locator(".na-values").scroll_into_view_if_needed()
    name = cell.rank(1).locator(".na-values .na-unseen").first.bounding_box()
    assert name is not None
    assert name["width"] > 20, "a value without a title has its name beside it"
    page.open_gate("the end")
    cell.wait_for_end()


METRICS = """
def train():
    rank = int(os.environ["RANK"])
    with tqdm(total=1_000_000, desc="epoch of training", unit="sample", mininterval=0) as bar:
        for step in range(40):
            report({"train/loss": 123456.5 / (1 + step), "validation/loss_of_the_part_that_is_held_out": step * rank})
        bar.update(200_000 if rank == 1 else 800_000)
        print("a line of output that is rather long, to see whether it wraps in a narrow cell")
        wait_for("the end")
        if rank == 1:
            raise ValueError("there are no more batches to be read")
"""


def test_nothing_is_cut_off_beside_an_open_sidebar(own_page: Page) -> None:
    """A cell is then 232 px wide: with all that can be opened, with an enlarged chart, and as it stays."""
    own_page.tab.set_viewport_size({"width": 600, "height": 1400})
    own_page.evaluate("window.jupyterapp.shell.expandLeft()")
    own_page.run(METRICS)
    cell = own_page.begin("notebook_launcher(train, num_processes=2)")
    for rank in range(2):
        expect(cell.rank(rank)).to_contain_text("epoch of training")
        cell.rank(rank).locator(".na-toggle").click()
        expect(cell.rank(rank)).to_contain_text("a narrow cell")
    expect(cell.panel.locator(".na-chart canvas")).to_have_count(2)
    cell.panel.get_by_role("tab", name="About").click()
    fits(cell)
    cell.panel.get_by_role("tab", name="Ranks").click()
    box = cell.panel.bounding_box()
    assert box is not None
    assert box["width"] < 240
    fits(cell)
    expect(cell.rank(1).locator(".na-amount")).to_contain_text("sample/s")
    expect(cell.rank(1).locator(".na-amount")).to_be_visible()
    own_page.screenshot("running")
    chart = cell.panel.locator(".na-chart > .na-plot").first
    chart.scroll_into_view_if_needed()
    before = chart.bounding_box()
    chart.hover()
    expect(cell.panel.locator(".na-past").first).to_contain_text(" at ")
    assert chart.bounding_box() == before, "the value under the pointer moves nothing"
    chart.click()
    expect(cell.panel.locator(".na-enlarged canvas")).to_be_visible()
    fits(cell)
    own_page.screenshot("enlarged")
    own_page.open_gate("the end")
    cell.wait_for_end()
    expect(cell.panel.locator(".na-chart canvas")).to_have_count(2)
    fits(cell)
    own_page.screenshot("ended")
