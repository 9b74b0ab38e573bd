"""The Stop button: whatever the kernel is busy with, it ends its own job and nothing else."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.page import Page

WITHOUT_SUBSHELLS = "6.29"
"""An ipykernel that hears of a click only between two cells."""
TRAIN = """
def train():
    for step in tqdm(range(1000), desc="step"):
        wait_for("never")
"""


@pytest.mark.everywhere
def test_stop_ends_a_launch_that_its_cell_waits_for(page: Page) -> None:
    page.run(TRAIN)
    cell = page.begin("notebook_launcher(train, num_processes=2)")
    expect(cell.rank(1)).to_contain_text("step 0/1000")
    page.screenshot("running")
    cell.stop.click()
    cell.wait_for_end()
    assert cell.failed
    expect(cell.panel).to_contain_text("interrupted")
    expect(cell.rank(1)).to_contain_text("stopped")  # it has not failed
    page.run("6 * 7").wait_for("42")


STUBBORN = """
from notebook_accel import attach
from notebook_accel.launch.driver import stop_policy as stopping

# Nothing but a second click kills them.
steps = (0.0, stopping.signal.SIGINT), (600.0, stopping.signal.SIGKILL)
usual = stopping.ONE_CALL.steps[stopping.StopReason.INTERRUPT]
stopping.ONE_CALL.steps[stopping.StopReason.INTERRUPT] = steps

def train():
    for step in tqdm(range(1000), desc="step"):
        try:
            wait_for("never")
        except KeyboardInterrupt:
            print("not yet")
"""
BOTH_SAID = re.compile(r"\[0-1\] not yet|\[[01]\] not yet\s*\[[01]\] not yet")
"""As one line of both ranks, unless they were too far apart."""


def test_a_second_click_kills_ranks_that_do_not_end(page: Page) -> None:
    page.run(STUBBORN)
    cell = page.begin("notebook_launcher(train, num_processes=2)")
    expect(cell.rank(1)).to_contain_text("step 0/1000")
    cell.stop.click()
    expect(cell.output).to_contain_text(BOTH_SAID)
    expect(cell.panel).to_contain_text("Click again to kill")
    page.screenshot("stopping")
    cell.panel.get_by_role("button", name="Stopping…").click()
    cell.wait_for_end()
    page.run("job = attach(); print(job.stopping, [state.exited.signal for state in job.ranks])").wait_for("2 [9, 9]")
    page.run("stopping.ONE_CALL.steps[stopping.StopReason.INTERRUPT] = usual")


@pytest.mark.everywhere
def test_stop_ends_a_job_in_the_background_and_not_the_cell_that_runs(page: Page, kernel: str) -> None:
    page.run(TRAIN)
    cell = page.run("job = notebook_launcher(train, num_processes=2, block=False)")
    expect(cell.rank(1)).to_contain_text("step 0/1000")
    other = page.begin("""
        print("begun")
        wait_for("end of the other cell")
        print("unharmed")
    """)
    other.wait_for("begun")
    page.screenshot("running")
    cell.stop.click()
    if kernel != WITHOUT_SUBSHELLS:
        expect(cell.panel).to_contain_text("cancelled")
        assert not other.ended
    page.open_gate("end of the other cell")
    other.wait_for("unharmed")
    other.wait_for_end()
    assert not other.failed
    expect(cell.panel).to_contain_text("cancelled")


def test_the_keyboard_alone_stops_a_job(page: Page) -> None:
    page.run(TRAIN)
    cell = page.run("job = notebook_launcher(train, num_processes=2, block=False)")
    expect(cell.rank(1)).to_contain_text("step 0/1000")
    cell.stop.focus()
    page.tab.keyboard.press("Enter")  # which begins to edit the cell, if the notebook takes it
    expect(cell.panel).to_contain_text("cancelled")
