"""The kernel is restarted while jobs run: their panels stay, and those of jobs that go on are live."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.page import Page

TRAIN = """
from notebook_accel import attach

def train():
    for step in tqdm(range(10), desc="step", mininterval=0):
        wait_for(f"step {step}")
"""
RESTART = "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"


def test_a_panel_whose_kernel_is_gone_does_not_call_its_job_running(own_page: Page) -> None:
    own_page.run(TRAIN)
    own_page.open_gate("step 0")
    ended = own_page.run("job = notebook_launcher(train, num_processes=2, block=False)")
    alive = own_page.run("job = notebook_launcher(train, num_processes=2, detach=True)")
    for cell in (ended, alive):
        expect(cell.rank(1)).to_contain_text("step 1/10")
    own_page.evaluate(RESTART)
    expect(ended.panel).to_contain_text("ended with its kernel")
    expect(ended.rank(1)).to_contain_text("stopped")
    expect(ended.stop).to_be_hidden()
    # What the other does goes on, and its panel with it.
    own_page.screenshot("restarted")
    own_page.open_gate("step 1")
    expect(alive.rank(1)).to_contain_text("step 2/10")
    own_page.wait_until_ready()
    again = own_page.run("from notebook_accel import attach; job = attach()")
    expect(again.rank(1)).to_contain_text("step 2/10")
    alive.stop.click()
    for cell in (alive, again):
        expect(cell.panel).to_contain_text("cancelled")
