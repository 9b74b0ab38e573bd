"""The page is loaded again while a job runs."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.browser import chromium
from tests.browser.page import Page
from tests.live_notebook import wait_until

MIME = "application/vnd.notebook-accel.job+json"
JOB_ID = re.compile(r"^\s*[0-9a-f]{12}\s*$")
TRAIN = """
from notebook_accel.launch.show import line_merger

line_merger.MERGE_WINDOW = 20  # a busy machine may start one rank late

def train():
    for epoch in tqdm(range(3), desc="epoch"):
        wait_for(f"epoch {epoch}")
        print("after epoch", epoch)
"""


def test_a_job_is_shown_again_after_the_page_was_loaded_again(own_page: Page) -> None:
    """Long: the front end is loaded twice."""
    own_page.run(TRAIN)
    first = own_page.run("job = notebook_launcher(train, num_processes=2, block=False)")
    expect(first.rank(1)).to_contain_text("epoch 0/3")
    own_page.save()
    own_page.reload()
    expect(first.panel).to_contain_text("train()")
    own_page.screenshot("reloaded")
    own_page.open_gate("epoch 0")
    again = own_page.run("job.show()")
    for rank in range(2):
        expect(again.rank(rank)).to_contain_text("epoch 1/3")
    expect(first.output.locator(".na-panel")).to_have_count(1)
    own_page.screenshot("shown")
    own_page.open_gate("epoch 1")
    expect(again.rank(1)).to_contain_text("epoch 2/3")
    # The job ends while no page shows it.
    own_page.save()
    own_page.leave()
    own_page.open_gate("epoch 2")
    own_page.wait_for_jobs()
    own_page.enter()
    for cell in (first, again):
        cell.panel.scroll_into_view_if_needed()  # a job that has ended is asked for once somebody sees it
        expect(cell.panel.locator(".na-status")).to_have_text("done")
        expect(cell.output.locator(".na-panel")).to_have_count(1)
    own_page.screenshot("opened")
    wait_until(lambda: is_stored(own_page, "done"))


def is_stored(page: Page, status: str) -> bool:
    """Whether the saved notebook says in HTML how each job ended, and nothing in it needs a kernel."""
    outputs = [each for cell in page.save().cells for each in cell.get("outputs", ())]
    jobs = [each["data"] for each in outputs if MIME in each.get("data", {})]
    assert jobs
    assert not any("application/vnd.jupyter.widget" in name for data in jobs for name in data)
    return all(status in data.get("text/html", "") and set(data[MIME]) == {"job"} for data in jobs)


@pytest.mark.twice
def test_a_job_that_its_cell_waits_for_is_shown_again_after_the_page_was_loaded_again(own_page: Page) -> None:
    """Long: the front end is loaded twice."""
    own_page.run(TRAIN)
    first = own_page.begin("notebook_launcher(train, num_processes=2)")
    expect(first.rank(1)).to_contain_text("epoch 0/3")
    own_page.save()
    own_page.reload()
    own_page.open_gate("epoch 0")  # the kernel is busy
    for rank in range(2):
        expect(first.rank(rank)).to_contain_text("epoch 1/3")
    own_page.screenshot("reloaded")
    own_page.open_gate("epoch 1")
    expect(first.rank(1)).to_contain_text("epoch 2/3")
    # What the ranks print from then on is in the panel.
    first.panel.get_by_role("tab", name="Logs").click()
    expect(first.panel.get_by_role("log")).to_contain_text("after epoch 1")
    first.stop.click()
    expect(first.panel).to_contain_text("interrupted")
    own_page.screenshot("ended")
    wait_until(lambda: is_stored(own_page, "interrupted"))


def test_a_job_is_shown_again_after_the_page_was_loaded_again_without_having_been_saved(own_page: Page) -> None:
    """Long: the front end is loaded twice."""
    own_page.run(TRAIN)
    first = own_page.begin("notebook_launcher(train, num_processes=2)")
    expect(first.rank(1)).to_contain_text("epoch 0/3")
    own_page.save_without_outputs()
    own_page.reload()
    expect(first.rank(1)).to_contain_text("epoch 0/3")
    own_page.open_gate("epoch 0")
    expect(first.rank(1)).to_contain_text("epoch 1/3")
    own_page.screenshot("added")
    own_page.reload()  # once more: nothing is there twice
    expect(first.rank(1)).to_contain_text("epoch 1/3")
    expect(first.output.locator(".na-panel")).to_have_count(1)
    first.stop.click()
    expect(first.panel).to_contain_text("interrupted")


def test_the_tab_of_a_job_is_back_and_live_after_the_page_was_loaded_again(own_page: Page) -> None:
    """Long: the front end is loaded twice."""
    own_page.run(TRAIN)
    cell = own_page.run("job = notebook_launcher(train, num_processes=4, device='cpu', block=False); print(job.id)")
    job = cell.output.get_by_text(JOB_ID).first.inner_text().strip()
    own_page.tab.locator("#jp-main-statusbar .na-lab-running").click()
    tab = own_page.tab.locator(".na-lab-job-tab")
    expect(tab).to_contain_text("train()")
    own_page.wait_for_layout(f"notebook-accel-jobs:{job}")
    own_page.reload()
    expect(tab).to_contain_text("train()")
    expect(tab.locator(".na-cell, .na-row").first).to_be_visible()
    own_page.open_gate("epoch 0")
    expect(tab).to_contain_text("33%")
    own_page.screenshot("restored")
    own_page.evaluate("window.jupyterapp.commands.execute('notebook-accel:stop')")
    expect(tab).to_contain_text("cancelled")


@pytest.mark.nightly
@pytest.mark.front_ends
def test_two_browsers_show_a_job_that_its_cell_waits_for(own_page: Page, browser: Browser) -> None:
    """Long: the front end is loaded three times."""
    own_page.run(TRAIN)
    first = own_page.begin("notebook_launcher(train, num_processes=2, device='cpu')")
    expect(first.rank(1)).to_contain_text("epoch 0/3")
    own_page.save()  # the second browser loads what is saved
    with browser.new_context(viewport=chromium.VIEWPORT) as context:
        tab = context.new_page()
        tab.goto(own_page.address)
        second = tab.locator(".jp-Notebook .jp-Cell").last
        row = second.locator(".na-row").nth(1)
        expect(row).to_contain_text("epoch 0/3")
        own_page.open_gate("epoch 0")
        for each in (row, first.rank(1)):
            expect(each).to_contain_text("epoch 1/3")
        own_page.reload()
        expect(first.rank(1)).to_contain_text("epoch 1/3")
        own_page.open_gate("epoch 1")
        for each in (row, first.rank(1)):
            expect(each).to_contain_text("epoch 2/3")
        own_page.screenshot("both")
        second.get_by_role("button", name="Stop").click()
        for each in (second, first.panel):
            expect(each).to_contain_text("interrupted")


@pytest.mark.nightly
def test_a_browser_that_leaves_takes_no_panel_from_another(own_page: Page, browser: Browser) -> None:
    """Long: the front end is loaded twice."""
    own_page.run(TRAIN)
    first = own_page.begin("notebook_launcher(train, num_processes=2, device='cpu')")
    expect(first.rank(1)).to_contain_text("epoch 0/3")
    own_page.save()
    with browser.new_context(viewport=chromium.VIEWPORT) as context:
        tab = context.new_page()
        tab.goto(own_page.address)
        expect(tab.locator(".jp-Notebook .jp-Cell").last.locator(".na-row").nth(1)).to_contain_text("epoch 0/3")
        toggle = first.rank(1).locator(".na-toggle")
        toggle.click()
        tab.goto("about:blank")
        for epoch in range(2):
            own_page.open_gate(f"epoch {epoch}")
            expect(first.rank(1)).to_contain_text(f"epoch {epoch + 1}/3")
        expect(toggle).to_have_attribute("aria-expanded", "true")
        own_page.open_gate("epoch 2")
