"""The page is loaded again while a job runs."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.page import Page

TRAIN = """
def train():
    for epoch in tqdm(range(3), desc="epoch"):
        wait_for(f"epoch {epoch}")
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
    own_page.screenshot("shown")
    own_page.open_gate("epoch 1")
    expect(again.rank(1)).to_contain_text("epoch 2/3")
    own_page.open_gate("epoch 2")
    expect(again.panel).to_contain_text("done")
    # The front end has lost the way to this output, so the panel stays.
    expect(first.output.locator(".na-panel")).to_contain_text("done")
    assert first.output.locator(".na-panel").bounding_box()["width"] > 600  # type: ignore[index]
    expect(own_page.tab.get_by_text("model not found")).to_have_count(0)


def test_a_job_that_its_cell_waits_for_survives_that_the_page_is_loaded_again(own_page: Page) -> None:
    own_page.run(TRAIN)
    first = own_page.begin("notebook_launcher(train, num_processes=2)")
    expect(first.rank(1)).to_contain_text("epoch 0/3")
    own_page.save()
    own_page.reload()
    # The front end asks the kernel for the panel, which is busy until the cell ends.
    for epoch in range(3):
        own_page.open_gate(f"epoch {epoch}")
    own_page.wait_until_ready()
    again = own_page.run("from notebook_accel import attach; job = attach()")
    for rank in range(2):
        expect(again.rank(rank)).to_contain_text("epoch 3/3")
    own_page.screenshot("attached")
