"""JupyterLab's own debugger, as a user works with it, on the ranks of a cell."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.page import Page

CELL = "%%accelerate\nscale = 10 * rank\ntotal = scale + 1\nprint('total', total)"
_BREAKPOINT = ".jp-Cell.jp-mod-active .cm-breakpoint-gutter .cm-gutterElement:visible"


def test_a_breakpoint_holds_each_rank_and_frames_choose_the_rank(own_page: Page) -> None:
    """Long: a kernel of its own, in which debugpy starts, and in two ranks."""
    page, tab = own_page, own_page.tab
    page.run("%%accelerate -n 2\npass")
    tab.locator(".jp-DebuggerBugButton:visible").click()
    expect(tab.locator(".jp-DebuggerBugButton[aria-pressed=true]:visible")).to_be_visible()
    page.evaluate(
        """code => {
        const notebook = window.jupyterapp.shell.currentWidget.content;
        notebook.model.sharedModel.insertCell(notebook.widgets.length, {cell_type: "code", source: code});
        notebook.activeCellIndex = notebook.widgets.length - 1;
    }""",
        CELL,
    )
    tab.locator(_BREAKPOINT).nth(3).click()
    expect(tab.locator(".jp-DebuggerBreakpoints")).to_contain_text("4")
    page.evaluate("void window.jupyterapp.commands.execute('notebook:run-cell')")
    stack = tab.locator(".jp-DebuggerCallstack")
    expect(stack).to_contain_text("rank 0: <module>")
    expect(stack).to_contain_text("rank 1: <module>")
    stack.get_by_text("rank 1: <module>").click()
    expect(tab.get_by_role("treeitem", name="scale: 10")).to_be_visible()
    page.screenshot("held")
    stack.get_by_text("rank 0: <module>").click()
    expect(tab.get_by_role("treeitem", name="scale: 0")).to_be_visible()
    tab.get_by_role("button", name="Continue (F9)").click()
    expect(page.last.output).to_contain_text("[0] total 1")
    expect(page.last.output).to_contain_text("[1] total 11")
    expect(stack).not_to_contain_text("rank 0")
