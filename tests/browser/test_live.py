"""What a user sees while ranks run."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.page import Page

TRAIN = """
def train():
    rank = int(os.environ["RANK"])
    for epoch in tqdm(range(4), desc="epoch"):
        for step in tqdm(range(10), desc="batch", leave=False):
            report(loss=1 / (1 + 10 * epoch + step + rank), step=10 * epoch + step)
        wait_for(f"epoch {epoch}")
    print("trained")
"""


@pytest.mark.everywhere
def test_rows_follow_the_ranks_while_the_cell_runs(page: Page) -> None:
    page.run(TRAIN)
    cell = page.begin("notebook_launcher(train, num_processes=2)")
    for rank in range(2):
        expect(cell.rank(rank)).to_contain_text("epoch 0/4")
        expect(cell.rank(rank)).to_contain_text("loss")
    page.open_gate("epoch 0")
    for rank in range(2):
        expect(cell.rank(rank)).to_contain_text("epoch 1/4")
    expect(cell.rank(1).locator(".na-memory")).to_have_text(re.compile(r"CPU \d+%, \d+ MB"))
    expect(cell.panel).to_contain_text("0.04881")  # the mean of 1 / 20 and 1 / 21
    assert not cell.ended
    row = cell.rank(1)
    row.get_by_role("button", name="Details of rank 1").click()
    row.get_by_role("button", name="Where is it now?").click()
    expect(row.locator(".na-stack")).to_contain_text("in wait_for")
    row.get_by_role("searchbox").fill("nothing")
    page.screenshot("running")
    for epoch in range(1, 4):
        page.open_gate(f"epoch {epoch}")
    cell.wait_for_end()
    cell.wait_for("done")


SPIKE = """
def spike():
    import math
    for step in range(1000):
        loss = math.nan if 600 <= step < 640 else 50.0 if step == 300 else 10 / (1 + step / 100)
        report({"loss": loss, "accuracy": step / 1000}, step=step)
    wait_for("end")
"""

HOT = """
import dataclasses
from notebook_accel import hardware
from notebook_accel.hardware.device_probe import GpuReading

class HotGpu:  # stands for the driver of a GPU that each rank uses
    def read(self):
        reading = GpuReading("H100", 87, 41 << 30, 80 << 30, 91, 310, 700, ("temperature", "power limit"))
        return {"cpu": reading}
    def close(self):
        pass

platforms = hardware.ACCELERATORS
hardware.ACCELERATORS = (*platforms[:-1], dataclasses.replace(platforms[-1], sensors=HotGpu))
"""


def test_a_chart_marks_nan_and_states_a_spike_and_a_hot_gpu_is_named(page: Page) -> None:
    page.run(SPIKE + HOT)
    cell = page.begin("notebook_launcher(spike, num_processes=2)")
    chart = cell.panel.locator('.na-chart[data-metric="loss"]')
    for fact in ("last at step 999", "max 50 at step 300", "80 NaN, first at step 600"):
        expect(chart).to_have_attribute(
            "title", re.compile(re.escape(fact)), timeout=60_000
        )  # ranks start late on a busy machine
    expect(chart.locator("canvas")).to_be_visible()
    row = cell.rank(1)
    expect(row.locator(".na-memory")).to_have_text("GPU 87%, 41.0 GB")
    expect(row.locator(".na-warning")).to_contain_text("because it is too hot (91 °C)")
    row.get_by_role("button", name="Details of rank 1").click()
    expect(row.locator(".na-details")).to_contain_text("310 W of 700 W")
    page.screenshot("spike")
    page.open_gate("end")
    cell.wait_for_end()
    page.run("hardware.ACCELERATORS = platforms")


def test_the_kernel_is_shown_as_busy_though_it_has_handled_what_a_widget_sent(own_page: Page) -> None:
    own_page.run("""
    from notebook_accel.launch.journal import pages
    from notebook_accel import set_view
    pages.draws_jobs = lambda session: False  # as without the server's extension
    set_view("widget")
    def train():
        wait_for("the end")
    """)
    own_page.evaluate("""() => {
        const { kernel } = window.jupyterapp.shell.currentWidget.sessionContext.session;
        kernel.anyMessage.connect((_, { msg }) => {
            if (msg.header.msg_type !== "status" || !msg.parent_header.msg_type.startsWith("comm_")) return;
            window.handled ||= msg.content.execution_state === "idle";
        });
    }""")
    cell = own_page.begin("notebook_launcher(train, num_processes=2)")
    own_page.tab.wait_for_function("window.handled")
    expect(own_page.tab.locator("#jp-main-statusbar")).to_contain_text("Busy")
    expect(cell.stop).to_be_visible()
    own_page.open_gate("the end")
    cell.wait_for_end()
    expect(own_page.tab.locator("#jp-main-statusbar")).to_contain_text("Idle")
