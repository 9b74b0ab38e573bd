"""The flame graph of a running job, in a browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.page import Page
from tests.browser.test_looks import is_accessible

WORK = """
def work():
    while not os.path.exists("the end"):
        for _ in range(100):
            sum(range(10_000))
        time.sleep(0.05)
"""


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_a_click_enlarges_a_call_and_another_shows_all_again(own_page: Page, theme: str) -> None:
    own_page.use_theme(theme)
    own_page.run(WORK)
    own_page.run("job = notebook_launcher(work, num_processes=2, block=False)")
    own_page.run("while any(state.phase.value != 'running' for state in job.ranks): time.sleep(0.01)")
    own_page.run("job.flamegraph(0.5)")
    boxes = own_page.tab.locator(".jp-Cell:last-child details[open] [title*='work, In[']")
    expect(boxes.first).to_be_visible()
    assert boxes.count() == 2
    is_accessible(own_page)
    own_page.screenshot("flamegraph")
    widths = [box.evaluate("node => node.offsetWidth") for box in boxes.all()]
    boxes.last.click()
    expect(boxes.first).to_be_hidden()
    assert boxes.last.evaluate("node => node.offsetWidth") > widths[1]
    boxes.last.press("Enter")
    expect(boxes.first).to_be_visible()
    assert [box.evaluate("node => node.offsetWidth") for box in boxes.all()] == widths
    own_page.open_gate("the end")
    own_page.run("job.result()")
