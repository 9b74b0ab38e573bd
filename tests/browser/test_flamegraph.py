"""The flame graph of a running job, in a browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.page import Page
from tests.browser.test_looks import is_accessible

NAMED = "[title*='work, In[']"
# Each rank is always on one line, so that there are two boxes however the machine shares out its time.
WORK = """
def work():
    if os.environ["RANK"] == "0":
        while not os.path.exists("the end"): time.sleep(0.05)
    else:
        while not os.path.exists("the end"): time.sleep(0.05)
"""


def draw(page: Page) -> None:
    """Shows the flame graph of a job, and lets the job end."""
    page.run(WORK)
    page.run("job = notebook_launcher(work, num_processes=2, block=False)")
    page.run("while any(state.phase.value != 'running' for state in job.ranks): time.sleep(0.01)")
    page.run("job.flamegraph(0.5)")
    page.open_gate("the end")


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_a_click_enlarges_a_call_and_another_shows_all_again(page: Page, theme: str) -> None:
    page.use_theme(theme)
    draw(page)
    boxes = page.tab.locator(f".jp-Cell:last-child details[open] {NAMED}")
    expect(boxes.first).to_be_visible()
    assert boxes.count() == 2
    is_accessible(page)
    page.screenshot("flamegraph")
    widths = [box.evaluate("node => node.offsetWidth") for box in boxes.all()]
    boxes.last.click()
    expect(boxes.first).to_be_hidden()
    assert boxes.last.evaluate("node => node.offsetWidth") > widths[1]
    boxes.last.press("Enter")
    expect(boxes.first).to_be_visible()
    assert [box.evaluate("node => node.offsetWidth") for box in boxes.all()] == widths


@pytest.mark.nightly  # `test_snapshot` opens such a notebook, too
def test_a_notebook_that_is_not_trusted_shows_the_same_picture(own_page: Page) -> None:
    """Long: the notebook is saved, its kernel ended, and the front end loaded again."""
    draw(own_page)
    boxes = own_page.tab.locator(f"details[open] {NAMED}")
    widths = [box.evaluate("node => node.offsetWidth") for box in boxes.all()]
    own_page.save()
    reopened = own_page.reopen(edited=lambda source: source.replace("is not trusted", "was not trusted"))
    assert not reopened.last.trusted
    expect(boxes.first).to_be_visible()
    assert [box.evaluate("node => node.offsetWidth") for box in boxes.all()] == widths
    assert "work, In[" in boxes.first.inner_text()
