"""The logs of ranks in the panel: what a user finds in them while the cell runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.page import Page
from tests.browser.test_looks import is_accessible

TRAIN = r"""
import sys

def train():
    rank = int(os.environ["RANK"])
    print("\n".join(f"step {step} \x1b[1;32mok\x1b[0m" for step in range(1200)), flush=True)
    print("WARNING: <img src=x onerror=alert(1)>", file=sys.stderr, flush=True)
    try:
        [][rank]
    except IndexError:
        import traceback; traceback.print_exc()
    wait_for("more")
    print(f"more of rank {rank}", flush=True)
    wait_for("end")
"""


@pytest.mark.front_ends
def test_a_log_is_filtered_folded_and_stored_while_its_cell_runs(page: Page) -> None:
    """Long: all that a user does with a log, in both front ends."""
    page.run(TRAIN)
    cell = page.begin("notebook_launcher(train, num_processes=2)")
    cell.rank(1).locator(".na-toggle").click()
    log = cell.rank(1).locator(".na-output")
    lines = log.locator(".na-lines")
    expect(lines).to_contain_text("IndexError")
    expect(lines.locator("details summary")).to_contain_text("traceback, ")
    expect(lines.get_by_text("step 1199")).to_be_visible()
    expect(lines.locator("img")).to_have_count(0)
    log.get_by_role("button", name="Show earlier lines").click()
    expect(lines).to_contain_text("step 10 ok")
    log.get_by_label("Level of the lines").select_option("Warnings and errors")
    expect(lines.get_by_text("step 1199")).to_have_count(0)
    expect(lines).to_contain_text("WARNING: <img")
    log.get_by_label("Level of the lines").select_option("All levels")
    log.get_by_label("Filter the lines").fill("STEP 7")
    expect(lines.get_by_text("step 7", exact=False).first).to_contain_text("step 7")
    expect(log.locator(".na-tools > .na-count")).to_have_text("111 lines match")
    page.screenshot("filtered")
    log.get_by_label("Filter the lines").fill("")
    cell.panel.get_by_role("tab", name="Logs").click()
    whole = cell.panel.locator(".na-tabpanel > .na-output")
    expect(whole.locator(".na-lines")).to_contain_text("step 1199")
    whole.get_by_label("Level of the lines").select_option("Warnings and errors")
    expect(whole.locator(".na-lines")).to_contain_text("WARNING: <img")
    whole.get_by_label("Level of the lines").select_option("All levels")
    page.open_gate("more")
    for rank in range(2):
        expect(whole.locator(".na-lines")).to_contain_text(f"[{rank}] more of rank {rank}")
    expect(lines).to_contain_text("more of rank 1")
    page.screenshot("logs")
    is_accessible(page)
    with page.tab.expect_download() as waiting:
        whole.get_by_role("button", name="Download the log of all ranks").click()
    text = Path(waiting.value.path()).read_text()
    assert sum(line.startswith("[1] step ") for line in text.splitlines()) == 1200
    assert "\x1b" not in text
    assert not cell.ended
    page.open_gate("end")
    cell.wait_for_end()


def test_the_log_of_a_detached_job_is_read_from_its_journal_also_after_a_reload(page: Page) -> None:
    """Long: the page is loaded again."""
    page.run(TRAIN)
    page.run("from notebook_accel import attach\njob = notebook_launcher(train, num_processes=2, detach=True)")
    page.reload()
    page.wait_until_ready()
    cell = page.begin("followed = attach()")
    cell.rank(1).locator(".na-toggle").click()
    log = cell.rank(1).locator(".na-output")
    expect(log.locator(".na-lines")).to_contain_text("IndexError")
    log.get_by_label("Filter the lines").fill("step 7")
    expect(log.locator(".na-tools > .na-count")).to_have_text("111 lines match")
    log.get_by_label("Filter the lines").fill("more")
    page.open_gate("more")
    expect(log.locator(".na-lines")).to_contain_text("more of rank 1")
    page.open_gate("end")
    cell.wait_for("done")
    page.wait_for_jobs()
