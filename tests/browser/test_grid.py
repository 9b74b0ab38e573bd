"""More ranks than rows can show."""

from __future__ import annotations

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
