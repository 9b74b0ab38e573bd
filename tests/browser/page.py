"""A notebook in a real browser: its cells are run, and what stands below them is read, as a user would."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import BrowserContext, Error, Locator, TimeoutError, expect

from tests.browser import chromium
from tests.browser.server import Server
from tests.live_notebook import UNTRAINED, wait_until

PATIENCE = 60.0
"""Seconds within which anything that is waited for comes."""
_LONG_AGO = 1.6e9
"""Seconds since the epoch."""
_MILLISECONDS = 1000
PRELUDE = f"""{UNTRAINED}
import os, time
from tqdm.auto import tqdm
from notebook_accel import notebook_launcher, report

def wait_for(gate):  # until the test opens it
    while not os.path.exists(gate):
        time.sleep(0.01)
"""
_THEME = "JupyterLab Light"
"""What a front end begins with."""
_WIDGET = "window.jupyterapp?.shell?.currentWidget"
_IS_READY = f"""path => {{
    const widget = {_WIDGET};
    return widget?.context?.path === path && widget.context.isReady
        && widget.sessionContext.session?.kernel?.status === "idle";
}}"""
_STATE = f"""() => {{
    const widget = {_WIDGET}, kernel = widget?.sessionContext?.session?.kernel;
    return {{path: widget?.context?.path, isReady: widget?.context?.isReady, kernel: kernel?.id,
        status: kernel?.status, connection: kernel?.connectionStatus, page: document.title}};
}}"""
"""Why it may not be."""
_BEGIN = f"""code => {{
    const notebook = {_WIDGET}.content;
    const index = notebook.widgets.length;
    notebook.model.sharedModel.insertCell(index, {{cell_type: "code", source: code}});
    notebook.activeCellIndex = index;
    notebook.widgets[index].node.scrollIntoView();
    window.cellsEnded ??= {{}};
    window.jupyterapp.commands.execute("notebook:run-cell").then(() => {{ window.cellsEnded[index] = true; }});
    return index;
}}"""

_CLEAR = f"""() => {{
    const model = {_WIDGET}.content.model.sharedModel;
    model.deleteCellRange(1, model.cells.length);
    window.cellsEnded = {{}};
    window.jupyterapp.shell.collapseRight();
}}"""


class Page:
    """One notebook, open in one tab."""

    def __init__(self, context: BrowserContext, server: Server, notebook: Path, pictures: Path) -> None:
        self._context = context
        self._server = server
        self._notebook = notebook
        self.pictures = pictures
        """Where screenshots go, but for the ends of their names."""
        self.tab = chromium.only_tab(context)
        self.tab.set_default_timeout(PATIENCE * _MILLISECONDS)
        self.crashes: list[str] = []
        """Exceptions in the panel's own script, which a front end loads from a blob, that nothing has caught."""
        self.is_used_up = False
        """Its kernel is no more, and its notebook open elsewhere."""
        self._theme = _THEME
        self.enter()
        self.wait_until_ready()

    def _on_error(self, error: Error) -> None:
        if "blob:" in (error.stack or ""):
            self.crashes.append(f"{error.message}\n{error.stack}")

    # Cells

    def begin(self, code: str) -> Cell:
        """Starts a new cell at the end of the notebook."""
        return Cell(self, self.tab.evaluate(_BEGIN, textwrap.dedent(code).strip()))

    def run(self, code: str) -> Cell:
        """Runs a new cell to its end, which must not be an error."""
        cell = self.begin(code)
        cell.wait_for_end()
        assert not cell.failed, cell.output.inner_text()
        return cell

    @property
    def last(self) -> Cell:
        """The last cell that is there, once the notebook is."""
        self.tab.wait_for_function(f"{_WIDGET}?.context?.isReady && {_WIDGET}.content.widgets.length")
        return Cell(self, self.evaluate(f"{_WIDGET}.content.widgets.length") - 1)

    def open_gate(self, name: str) -> None:
        """Lets ranks go on that `wait_for` it."""
        (self._notebook.parent / name).touch()

    def close_gate(self, name: str) -> None:
        """Undoes `open_gate`."""
        (self._notebook.parent / name).unlink()

    def wait_for_file(self, name: str) -> None:
        """Waits until the notebook's code has made it."""
        wait_until((self._notebook.parent / name).exists)

    # The notebook

    def clear(self) -> None:
        """Removes the cells that were added, closes the gates, and looks as at first."""
        self.tab.evaluate(_CLEAR)
        self.tab.set_viewport_size(chromium.VIEWPORT)
        self.use_theme(_THEME)
        self.crashes.clear()
        for file in self._notebook.parent.iterdir():
            if file.is_file() and file != self._notebook:
                file.unlink()

    def wait_until_ready(self) -> None:
        """Waits for the notebook and its kernel."""
        try:
            self.tab.wait_for_function(_IS_READY, arg=str(self._notebook.relative_to(self._server.root)))
        except TimeoutError as error:
            self.screenshot("not-ready")
            kernels = self._server.ask("GET", "kernels")
            raise AssertionError(f"{self.evaluate(_STATE)}\n{kernels}\n{self._server.log()}") from error

    def save(self) -> nbformat.NotebookNode:
        """Saves the notebook, and returns what is now in the file."""
        self.tab.evaluate(f"{_WIDGET}.context.save()")
        return nbformat.read(self._notebook, as_version=4)

    def save_without_outputs(self) -> None:
        """Leaves the file as if the notebook had been saved before its cells ran."""
        saved = self.save()
        for cell in saved.cells:
            if cell.cell_type == "code":
                cell.outputs = []
        nbformat.write(saved, self._notebook)
        os.utime(self._notebook, (_LONG_AGO, _LONG_AGO))

    def reload(self) -> None:
        """Loads the page again, while the kernel goes on."""
        self.tab.reload()

    def reopen(self, edited: Callable[[str], str] = str) -> Page:
        """Leaves the saved notebook, and opens it when its kernel is no more, and perhaps after it was edited."""
        self.leave()
        self.is_used_up = True
        self._server.end_kernels()
        self._notebook.write_text(edited(self._notebook.read_text()))
        page = Page(self._context, self._server, self._notebook, self.pictures)
        page.evaluate(f"{_WIDGET}.sessionContext.shutdown()")  # of the kernel that it has just been given
        return page

    @property
    def address(self) -> str:
        """Where another browser opens the notebook, too."""
        return self._server.address(self._notebook)

    def enter(self) -> None:
        """Opens the notebook in the tab."""
        self.tab.on("pageerror", self._on_error)
        self.tab.goto(self.address)

    def wait_for_jobs(self) -> None:
        """Waits until no job is recorded as running."""
        wait_until(lambda: not self._server.running_jobs())

    def forget_jobs(self) -> None:
        """Removes what is recorded of jobs."""
        self._server.forget_jobs()

    def wait_for_layout(self, text: str) -> None:
        """Waits until the front end has stored where its tabs are, and a text is part of it."""
        wait_until(lambda: text in self._server.layouts())

    def leave(self) -> None:
        """Is none of the tab's any more."""
        self.tab.remove_listener("pageerror", self._on_error)
        self.tab.goto("about:blank")

    def use_theme(self, name: str) -> None:
        """Changes the colors, and waits for their style sheet, which comes after the command has ended."""
        if name == self._theme:
            return
        self._theme = name
        self.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", name)
        self.tab.wait_for_function("theme => document.body.dataset.jpThemeName === theme", arg=name)

    def screenshot(self, name: str) -> None:
        """Leaves a picture for whoever wants to see how it looks."""
        self.pictures.parent.mkdir(exist_ok=True)
        self.tab.screenshot(path=self.pictures.with_name(f"{self.pictures.name}-{name}.png"))

    def evaluate(self, script: str, argument: Any = None) -> Any:
        return self.tab.evaluate(script, argument)


class Cell:
    """A code cell, by its place in the notebook."""

    def __init__(self, page: Page, index: int) -> None:
        self._page = page
        self._index = index
        self.output: Locator = page.tab.locator(".jp-Notebook .jp-Cell").nth(index).locator(".jp-Cell-outputArea")

    @property
    def ended(self) -> bool:
        return bool(self._page.evaluate("index => window.cellsEnded?.[index] === true", self._index))

    @property
    def failed(self) -> bool:
        kinds = f"index => {_WIDGET}.content.widgets[index].model.outputs.toJSON().map(each => each.output_type)"
        return "error" in self._page.evaluate(kinds, self._index)

    @property
    def trusted(self) -> bool:
        """Whether the front end shows its output as it is; else it takes scripts and the like out of it."""
        return bool(self._page.evaluate(f"index => {_WIDGET}.content.widgets[index].model.trusted", self._index))

    def wait_for_end(self) -> None:
        self._page.tab.wait_for_function("index => window.cellsEnded?.[index] === true", arg=self._index)

    def wait_for(self, text: str) -> None:
        """Waits until a text stands below it."""
        expect(self.output).to_contain_text(text)

    @property
    def panel(self) -> Locator:
        """What shows the job."""
        return self.output.locator(".jp-OutputArea-output").first

    @property
    def ranks(self) -> Locator:
        """The rows of ranks, in their order."""
        return self.panel.locator(".na-row, tr:has(> td:first-child b):has(> td:nth-child(2))")

    def rank(self, number: int) -> Locator:
        """The row of a rank."""
        return self.panel.locator(f".na-row[data-rank='{number}'], tr:has(> td:first-child b:text-is('{number}'))")

    def box(self, number: int) -> Locator:
        """The box of a rank among many."""
        return self.panel.locator(f".na-cell[data-rank='{number}']")

    @property
    def stop(self) -> Locator:
        return self.panel.get_by_role("button", name="Stop")
