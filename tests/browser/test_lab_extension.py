"""What stands around the notebook: the sidebar with the jobs, the status bar, and where cells run, in the toolbars."""

from __future__ import annotations

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, expect

from tests.browser.page import Page

TRAIN = """
def train():
    for epoch in tqdm(range(4), desc="epoch"):
        report(loss=1 / (1 + epoch), step=epoch)
        print("epoch", epoch, "begins")
        wait_for(f"epoch {epoch}")
"""
FAIL = """
def fail():
    for step in range(3):
        report(loss=2 / (1 + step), accuracy=step, step=step)
    raise ValueError("<b>no</b>")
"""
RESUMABLE = """
def train():
    import torch
    from notebook_accel import Accelerator

    accelerator = Accelerator()
    loader = torch.utils.data.DataLoader(torch.randn(2, 1))
    model, loader = accelerator.prepare(torch.nn.Linear(1, 1), loader)
    for epoch in accelerator.epochs(3):
        for inputs in loader:
            accelerator.backward(model(inputs).sum())
        if epoch == 2 and not os.path.exists("ends"):  # the first checkpoint is written
            raise RuntimeError("no more")
    return "trained"
"""


def jobs(page: Page) -> Locator:
    """The sidebar, shown."""
    page.evaluate("window.jupyterapp.commands.execute('notebook-accel:show-jobs')")
    sidebar = page.tab.get_by_role("region", name="Training jobs")
    expect(sidebar).to_be_visible()
    return sidebar


@pytest.mark.front_ends
def test_the_sidebar_shows_jobs_live_opens_stops_attaches_and_deletes(page: Page, front_end: str) -> None:
    """Long: it launches two jobs, and looks at it in each theme."""
    page.run(TRAIN + FAIL)
    page.run("job = notebook_launcher(train, num_processes=2, device='cpu', block=False)")
    sidebar = jobs(page)
    running = sidebar.locator(".na-lab-job").first
    expect(running).to_contain_text("train()")
    expect(running).to_contain_text("2 ranks · 0%")
    page.open_gate("epoch 0")
    page.open_gate("epoch 1")
    expect(running).to_contain_text("2 ranks · 50%")
    expect(running).to_contain_text("loss 0.3333")
    expect(running.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "50")
    machine = sidebar.locator(".na-lab-device[data-device=cpu]")
    expect(machine).to_contain_text(re.compile(r"CPU\d+% of \d+ cores?.*memory[\d.]+ of [\d.]+ GB"))
    expect(machine).to_contain_text("train(): ranks 0-1")
    assert running.locator("path").get_attribute("d").count("L") == 2  # type: ignore[union-attr]
    if front_end == "lab":
        status = page.tab.locator("#jp-main-statusbar .na-lab-running")
        expect(status).to_contain_text("50%")
        status.click()
        expect(page.tab.locator(".na-lab-job-tab .na-row").first).to_contain_text("50%")
    page.screenshot("running")
    open_panel(page, running, front_end)

    running.get_by_role("button", name="Attach").click()
    expect(page.last.output.locator("..").locator("..")).to_contain_text("attach(")
    running.get_by_role("button", name="Stop").click()
    expect(running).to_contain_text("cancelled")
    expect(page.tab.locator("#jp-main-statusbar .na-lab-running:visible")).to_have_count(0)

    page.begin("notebook_launcher(fail, num_processes=2, device='cpu')").wait_for_end()
    failed = sidebar.locator(".na-lab-job").first
    expect(failed).to_contain_text(re.compile("rank [01]: ValueError: <b>no</b>"))
    page.screenshot("failed")
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        page.use_theme(theme)
        expect(page.tab.locator("#jupyterlab-splash")).to_have_count(0)
        page.screenshot(theme)
        found = Axe().run(page.tab, context=".na-lab-sidebar")
        assert not found.violations_count, found.generate_report()
        assert found.response["passes"], "axe has looked at nothing"
    compare(page, sidebar, front_end)
    expect(failed).to_contain_text("fail()")
    metric = failed.locator(".na-lab-metric")
    expect(metric).to_contain_text("loss 0.6667")
    metric.evaluate("element => { element.style.width = '150px'; }")  # as if the name were long
    for part in (metric, failed.locator(".na-lab-value")):
        assert part.evaluate("element => element.scrollWidth <= element.clientWidth"), "the value is cut off"
    failed.get_by_role("button", name="Delete").click()
    page.tab.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(sidebar.get_by_text("fail()")).to_have_count(0)


def test_a_job_is_named_pinned_found_and_run_again(page: Page) -> None:
    """Long: it launches three jobs, and looks at them in two places."""
    page.forget_jobs()
    page.run("def done():\n    report(loss=1)\n    wait_for('drawn')")
    for number in (1, 2):
        cell = page.begin("notebook_launcher(done, num_processes=1, device='cpu')")
        expect(cell.panel).to_be_visible()
        page.open_gate("drawn")
        cell.wait_for_end()
        if number == 1:
            page.close_gate("drawn")
    sidebar = jobs(page)
    rows = sidebar.locator(".na-lab-job")
    listed = page.run("import notebook_accel\nprint(notebook_accel.jobs()[1].id)")
    older = sidebar.locator(f".na-lab-job[data-job='{listed.output.inner_text().strip()}']")
    expect(older).to_be_visible()
    expect(rows).to_have_count(2)  # the list still had those of the test before
    older.get_by_role("button", name="Pin done()").click()
    expect(rows.first.get_by_role("button", name="Pin done()")).to_have_attribute("aria-pressed", "true")
    older.get_by_role("button", name="Edit done()").click()
    dialog = page.tab.get_by_role("dialog")
    expect(dialog.get_by_label("Pin")).to_be_checked()
    dialog.get_by_label("Name").fill("<b>wide</b>")
    dialog.get_by_label("Notes").fill("without dropout\nand longer")
    page.screenshot("edit")
    found = Axe().run(page.tab, context=".jp-Dialog")
    assert not found.violations_count, found.generate_report()
    dialog.get_by_role("button", name="Save").click()
    expect(older.locator(".na-lab-title")).to_have_text("<b>wide</b>")
    expect(older).to_contain_text("and longer")
    page.screenshot("edited")
    found = Axe().run(page.tab, context=".na-lab-sidebar")
    assert not found.violations_count, found.generate_report()

    sidebar.get_by_label("Filter jobs").fill("DROPOUT")
    expect(rows).to_have_count(1)
    sidebar.get_by_label("Filter jobs").fill("dropout elsewhere")
    expect(sidebar).to_contain_text("No job has all of these words.")
    sidebar.get_by_label("Filter jobs").fill("")
    for number in (0, 1):
        sidebar.get_by_role("checkbox").nth(number).check()
    sidebar.get_by_role("button", name="Compare (2)").click()
    table = page.tab.get_by_role("region", name="Comparison of jobs").locator("tbody")
    expect(table).to_contain_text("<b>wide</b>")
    table.get_by_role("button", name="Edit <b>wide</b>").click()
    page.tab.get_by_role("dialog").get_by_label("Name").fill("")
    page.tab.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(table).not_to_contain_text("wide")
    expect(table).to_contain_text("without dropout")
    page.tab.locator(".lm-TabBar-tab", has_text="Compare 2 jobs").locator(".lm-TabBar-tabCloseIcon").click()

    before = older.get_attribute("data-job")
    older.get_by_role("button", name="Run Again done()").click()
    expect(sidebar.locator(".na-lab-job")).to_have_count(3)
    newest = rows.nth(1)
    assert newest.get_attribute("data-job") != before
    expect(newest).to_contain_text("done")
    page.forget_jobs()  # one is pinned


def test_a_training_is_resumed_below_its_cell_and_from_the_sidebar(page: Page) -> None:
    """Long: ranks train three times."""
    page.run(RESUMABLE)
    first = page.begin("notebook_launcher(train, num_processes=1, device='cpu', checkpoint='runs', every=1)")
    first.wait_for_end()
    button = first.output.get_by_role("button", name="Resume train()")
    expect(button).to_be_visible()
    expect(first.output).to_contain_text("to continue this training, run %accelerate resume")
    sidebar = jobs(page)
    unfinished = sidebar.locator(".na-lab-job").first
    expect(unfinished.get_by_role("button", name="Resume")).to_be_visible()
    page.screenshot("unfinished")

    page.open_gate("ends")
    button.click()
    expect(page.last.output).to_contain_text("'trained'")
    expect(page.last.output).to_contain_text("continues from")
    expect(sidebar.get_by_role("button", name="Resume")).to_have_count(0)

    page.close_gate("ends")
    page.begin("notebook_launcher(train, num_processes=1, device='cpu', checkpoint='others', every=1)").wait_for_end()
    sidebar.locator(".na-lab-job").first.get_by_role("button", name="Resume").click()
    expect(page.tab.locator(".jp-Notebook .jp-Cell").last).to_contain_text("%accelerate resume")
    page.screenshot("inserted")


def open_panel(page: Page, running: Locator, front_end: str) -> None:
    """Opens the panel of the job that runs, and closes it when it has gone on."""
    running.get_by_role("button", name="Open").click()
    tab = page.tab.locator(".na-lab-job-tab")
    row = tab.locator(".na-row").nth(1)
    expect(row).to_contain_text("50%")
    row.get_by_role("button", name="Details of rank 1").press("Enter")
    log = tab.get_by_role("log", name="Lines of rank 1")
    expect(log).to_contain_text("epoch 2 begins")
    tab.get_by_role("button", name="Enlarge loss").click()
    expect(tab.get_by_role("button", name="Each rank")).to_be_visible()
    page.open_gate("epoch 2")
    expect(row).to_contain_text("75%")
    expect(log).to_contain_text("epoch 3 begins")
    page.screenshot("panel")
    found = Axe().run(page.tab, context=".na-lab-job-tab")
    assert not found.violations_count, found.generate_report()
    if front_end == "lab":
        page.tab.locator(".lm-TabBar-tab", has_text="train()").locator(".lm-TabBar-tabCloseIcon").click()
    else:
        page.tab.get_by_role("dialog").get_by_role("button", name="Close", exact=True).click()
    expect(tab).to_have_count(0)


def compare(page: Page, sidebar: Locator, front_end: str) -> None:
    """Compares the last two jobs, `fail` and `train`, and closes the tab."""
    button = sidebar.get_by_role("button", name="Compare")
    expect(button).to_be_disabled()
    for number in (0, 1):
        sidebar.get_by_role("checkbox").nth(number).check()
    sidebar.get_by_role("button", name="Compare (2)").click()
    tab = page.tab.get_by_role("region", name="Comparison of jobs")
    expect(tab.locator("tbody th")).to_have_text([re.compile(r"^fail\(\)"), re.compile(r"^train\(\)")])
    expect(tab.locator("tbody tr").first).to_contain_text("failed")
    expect(tab.locator("tbody tr").first).to_contain_text(".ipynb")
    tab.get_by_role("button", name="loss", exact=True).click()
    expect(tab.locator("tbody th").first).to_contain_text("train()")
    tab.get_by_label("Filter jobs").fill("fail")
    expect(tab.locator("tbody tr")).to_have_count(1)
    tab.get_by_label("Filter jobs").fill("")
    tab.get_by_role("button", name="Log").click()
    expect(tab.get_by_label("Metric")).to_have_value("loss")
    expect(tab.get_by_role("img").first).to_have_attribute("aria-label", re.compile("^loss, fail.*: 0.666.*train"))
    expect(tab.locator("canvas")).to_have_count(3)  # one in detail, and one of each metric
    page.screenshot("comparison")
    found = Axe().run(page.tab, context=".na-lab-comparison")
    assert not found.violations_count, found.generate_report()
    tab.get_by_role("button", name="Enlarge accuracy").click()
    expect(tab.get_by_label("Metric")).to_have_value("accuracy")
    expect(tab).to_contain_text("it hasn't reported accuracy")
    if front_end == "lab":
        page.tab.locator(".lm-TabBar-tab", has_text="Compare 2 jobs").locator(".lm-TabBar-tabCloseIcon").click()
    else:
        page.tab.get_by_role("dialog").get_by_role("button", name="Close", exact=True).click()
    expect(tab).to_have_count(0)


@pytest.mark.front_ends
def test_the_toolbars_choose_where_cells_run(own_page: Page) -> None:
    """Long: a front end of its own, whose kernel starts ranks three times."""
    page = own_page
    control = page.tab.locator(".na-lab-ranks")
    expect(control).to_have_text("This kernel")
    control.click()
    page.tab.get_by_label("Number of ranks").fill("2")
    page.screenshot("choice")
    page.tab.get_by_role("button", name="Apply").click()
    expect(control).to_have_text("Every cell on 2 ranks")
    cell = page.run("print('rank', os.environ['RANK'])")
    expect(cell.output).to_contain_text("[0] rank 0")
    expect(cell.output).to_contain_text("[1] rank 1")
    page.screenshot("every-cell")

    page.run("kept = 6 * 7\nlost = (n for n in ())")
    control.click()
    page.tab.get_by_label("Number of ranks").fill("1")
    page.screenshot("resize")
    page.tab.get_by_role("button", name="Apply").click()
    expect(control).to_have_text("Every cell on 1 rank")
    expect(page.tab.get_by_role("alert").first).to_contain_text("Not kept: lost")
    expect(page.run("kept").output).to_contain_text("42")
    history = page.run("%%here\nprint([each for each in In if 'accelerate' in each and 'print' not in each])")
    expect(history.output).to_contain_text("[]")
    page.run("%accelerate cells off")
    expect(control).to_have_text("This kernel")

    page.begin("%accelerate cells on -n 0").wait_for_end()  # refused
    expect(control).to_have_text("This kernel")
    cell = page.run("x = os.getpid()")
    toggle = page.tab.locator(".jp-cell-toolbar [data-command='notebook-accel:toggle-accelerate']:visible")
    toggle.click()
    source = "window.jupyterapp.shell.currentWidget.content.activeCell.model.sharedModel.getSource()"
    assert page.evaluate(source) == "%%accelerate\nx = os.getpid()"
    page.screenshot("toggled")
    toggle.click()
    assert page.evaluate(source) == "x = os.getpid()"
