"""What stays in the saved notebook, for whoever opens it without its kernel."""

from __future__ import annotations

import json
import re

import pytest
from nbformat import NotebookNode
from playwright.sync_api import expect

from tests.browser.page import Page
from tests.live_notebook import wait_until

TRAIN = """
def train():
    for step in tqdm(range(20), desc="step"):
        report(loss=1 / (1 + step), step=step)
"""


def launch(page: Page) -> NotebookNode:
    page.run(TRAIN)
    page.run("notebook_launcher(train, num_processes=2)").wait_for("done")
    return page.save()


def has_the_whole_job(page: Page) -> None:
    """As HTML, without what is on disk."""
    cell = page.last
    for text in ("train()", "on 2 ranks", "done", "step 20/20", "best 0.05 at step 19"):
        expect(cell.output).to_contain_text(text)
    expect(cell.ranks).to_have_count(2)
    expect(cell.output.locator("img")).to_be_visible()
    expect(page.tab.get_by_text("model not found")).to_have_count(0)


@pytest.mark.everywhere
def test_a_notebook_shows_its_job_when_it_is_opened_without_the_kernel(page: Page) -> None:
    """Long: the notebook is saved, its kernel ended, and the front end loaded again."""
    saved = launch(page)
    assert "widgets" not in saved.metadata
    assert "application/vnd.jupyter.widget" not in json.dumps(saved)
    reopened = page.reopen()
    panel = reopened.last.output.locator(".na-panel")  # which comes of the disk
    expect(panel).to_contain_text("step 20/20")
    panel.get_by_role("button", name="Enlarge loss").click()
    expect(panel.get_by_role("button", name="Each rank")).to_be_visible()
    reopened.forget_jobs()
    reopened.reload()
    has_the_whole_job(reopened)


_ENDED = r"(interrupted|ended with its kernel)"
"""Jupyter's server interrupts a cell before it ends the kernel, which may or may not leave time to say so."""


@pytest.mark.front_ends
def test_a_notebook_whose_kernel_has_ended_before_the_job_shows_when_that_was(own_page: Page) -> None:
    """Long: a job runs as the notebook is saved, its kernel ended, and the front end loaded again."""
    own_page.run(TRAIN + "    wait_for('the end')\n")
    cell = own_page.begin("notebook_launcher(train, num_processes=2)")
    expect(cell.rank(1)).to_contain_text("step 20/20")
    own_page.save()
    reopened = own_page.reopen()
    expect(reopened.last.output.locator(".na-panel")).to_contain_text(re.compile(_ENDED))
    wait_until(lambda: re.search(_ENDED, json.dumps(reopened.save())))
    reopened.forget_jobs()
    reopened.reload()
    expect(reopened.last.output).to_contain_text(re.compile(rf"train\(\).*{_ENDED}", re.DOTALL))
    expect(reopened.tab.get_by_text("model not found")).to_have_count(0)


def test_a_notebook_that_is_not_trusted_shows_its_job_too(own_page: Page) -> None:
    launch(own_page)
    own_page.forget_jobs()
    reopened = own_page.reopen(
        edited=lambda source: source.replace("is not trusted", "was not trusted")
    )  # by another hand
    assert not reopened.last.trusted
    has_the_whole_job(reopened)
