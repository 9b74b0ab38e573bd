"""What a user sees when a rank fails."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.page import Page

TRAIN = """
def train():
    for step in tqdm(range(4), desc="step", mininterval=0):
        if step == 2:
            wait_for("the failure")
            if os.environ["RANK"] == "2":
                raise ValueError("the shard of rank 2 is empty")
            wait_for("never")
"""


def test_the_rank_that_failed_comes_first_with_its_error(page: Page) -> None:
    page.run(TRAIN)
    cell = page.begin("notebook_launcher(train, num_processes=3)")
    expect(cell.rank(2)).to_contain_text("step 2/4")
    page.open_gate("the failure")
    cell.wait_for_end()
    assert cell.failed
    expect(cell.panel).to_contain_text("ValueError: the shard of rank 2 is empty")
    expect(cell.ranks.first).to_contain_text("2")
    expect(cell.ranks.first).to_contain_text("failed")
