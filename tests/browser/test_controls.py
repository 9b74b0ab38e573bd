"""Buttons and fields that pause, tune and end a training run."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.page import Page
from tests.browser.test_looks import fits, is_accessible

TRAIN = """
def train(epochs):
    import torch
    from notebook_accel import Accelerator, set_seed
    accelerator = Accelerator()
    set_seed(7)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.utils.data.TensorDataset(torch.randn(1200, 3))
    model, optimizer, loader = accelerator.prepare(model, optimizer, torch.utils.data.DataLoader(data))
    accelerator.tunable("lr", 0.1, low=0)
    accelerator.tunable("steps_before_the_learning_rate_of_the_decoder_falls", 100)
    for epoch in accelerator.epochs(epochs):
        for (inputs,) in tqdm(loader, desc="batch"):
            loss = model(inputs).square().sum()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            report(loss=loss)
            time.sleep(0 if os.path.exists("fast") else 0.05)
    return epoch
"""

BESIDE = """facts => [...facts.children].every((node, index, all) => index % 2 === 0
    || Math.abs(node.getBoundingClientRect().top - all[index - 1].getBoundingClientRect().top) < 3
       && node.getBoundingClientRect().left >= all[index - 1].getBoundingClientRect().right)"""
"""Each fact stands on the line of its name, after it."""


def test_a_training_is_paused_tuned_and_ended_in_the_panel(page: Page) -> None:
    """Takes a while: a launch, whose panel is looked at in two themes and widths."""
    page.run(TRAIN)
    title = page.tab.title()
    cell = page.begin("notebook_launcher(train, (4,), 2, name='digits, wide', notes='without <b>dropout</b>')")
    expect(cell.panel.locator(".na-name")).to_have_text("digits, wide")
    expect(cell.panel).to_contain_text("without <b>dropout</b>")
    controls = cell.panel.get_by_role("group", name="Controls of the training")
    expect(controls.get_by_role("button", name="End after epoch")).not_to_have_attribute("aria-disabled", "true")
    expect(page.tab).to_have_title(re.compile("loss .* — "))  # which it has after its first step has been reported
    controls.get_by_role("button", name="Pause").click()
    expect(cell.panel.locator(".na-status")).to_have_text("paused")
    expect(cell.panel).to_contain_text("paused after step")
    for rank in range(2):
        expect(cell.rank(rank).locator(".na-word")).to_have_text("paused")
    controls.get_by_role("button", name="Save checkpoint").click(force=True)
    expect(controls).to_contain_text("Save checkpoint isn't available: the launch has no folder for checkpoints")
    rate = controls.get_by_role("spinbutton", name="lr")
    rate.fill("-1")
    rate.press("Enter")
    expect(controls).to_contain_text("lr must be at least 0, not -1")
    stop = controls.get_by_role("textbox", name="Stop when")
    stop.fill("loss beyond 3")
    stop.press("Enter")
    expect(controls).to_contain_text("'loss beyond 3' is not a condition that can stop the job")
    stop.fill("loss > 1e3 or loss is nan")
    stop.press("Enter")
    expect(stop).to_have_value("loss > 1000 or loss is NaN")
    expect(cell.panel).to_contain_text("rule 2: if loss is NaN: stop")
    cell.panel.get_by_role("tab", name="About").click()
    facts = cell.panel.locator(".na-about-facts")
    for fact in ("train(4)", "torch ", "7"):
        expect(facts).to_contain_text(fact)
    assert facts.evaluate(BESIDE), "a fact is not beside its name"
    expect(page.tab).to_have_title(re.compile("paused · .*loss .* — "))
    is_accessible(page)
    page.screenshot("paused")
    rate.fill("0.01")
    controls.get_by_role("button", name="Set lr").click()
    expect(cell.panel).to_contain_text("lr 0.1 → 0.01 after step")
    expect(rate).to_have_value("0.01")
    page.use_theme("JupyterLab Dark")
    page.tab.set_viewport_size({"width": 600, "height": 900})
    fits(cell)
    is_accessible(page)
    controls.scroll_into_view_if_needed()
    page.screenshot("dark")
    controls.get_by_role("button", name="Resume").click()
    expect(cell.panel).to_contain_text("paused for")
    expect(cell.panel.locator(".na-status")).to_have_text("running")
    controls.get_by_role("button", name="Flame graph").click()
    expect(controls).to_contain_text("Sampling for 5 s")
    expect(cell.panel.get_by_role("tab", name="Profile (1)")).to_have_attribute("aria-selected", "true")
    flames = cell.panel.frame_locator("iframe[title='Flame graph or profile']")
    expect(flames.get_by_text(re.compile(r"digits, wide on ranks 0-1: .* samples"))).to_be_visible(timeout=60_000)
    page.screenshot("flame graph")
    end = controls.get_by_role("button", name="End after epoch")
    end.scroll_into_view_if_needed()
    page.screenshot("above the flame graph")  # once it is drawn, since a click goes to the frame that is drawn there
    end.click()
    expect(cell.panel).to_contain_text("ends after epoch 1 of 4, as requested")
    page.open_gate("fast")
    cell.wait_for_end()
    expect(cell.panel).to_contain_text("ends after epoch 1 of 4, as requested")
    expect(cell.panel).to_contain_text("digits, wide")
    assert "digits, wide on ranks 0-1" in str(page.save().cells[-1].outputs[0]["data"]["text/html"]), "it stays"
    expect(page.tab).to_have_title(title)
    page.screenshot("ended")
    page.use_theme("JupyterLab Light")
