"""What JupyterLab's extension says where a kernel, a journal, or a folder is not as it expects."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import expect

from tests.browser import chromium
from tests.browser.conftest import PICTURES, _Contexts, _Pages, _Servers
from tests.browser.page import Page

LACKING = """
import sys
from ipykernel import kernelapp

class Finder:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "notebook_accel":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Finder())  # as if it weren't installed
kernelapp.launch_new_instance()
"""
OTHER_LANGUAGE = """
from ipykernel import kernelapp, kernelbase

class Kernel(kernelbase.Kernel):
    implementation = implementation_version = banner = "other"
    language_info = {"name": "lisp", "mimetype": "text/x-lisp", "file_extension": ".lisp"}

    def do_execute(self, code, silent, store_history=True, user_expressions=None, allow_stdin=False, **more):
        return {"status": "ok", "execution_count": self.execution_count, "payload": [], "user_expressions": {}}

kernelapp.launch_new_instance(kernel_class=Kernel)
"""
_Open = Callable[..., Page]


@pytest.fixture
def open_page(servers: _Servers, contexts: _Contexts, pages: _Pages, request: pytest.FixtureRequest) -> Iterator[_Open]:
    """Opens a notebook whose kernel is started by this code."""
    pages.close()
    server = servers("lab")
    context = contexts(server)
    opened: list[Page] = []

    def get(launch: str, language: str = "python") -> Page:
        name = f"{request.node.originalname}-{language}"
        spec = {
            "argv": [sys.executable, "-c", launch, "-f", "{connection_file}"],
            "display_name": name,
            "language": language,
        }
        server.add_kernel(name, spec)
        page = Page(context, server, server.new_notebook(name, f"**{name}**", name), PICTURES / name)
        opened.append(page)
        return page

    yield get
    for page in opened:
        page.leave()
    chromium.forget(context, server.url)
    server.end_kernels()
    server.forget()


def test_a_kernel_without_the_package_is_told_how_to_get_it(open_page: _Open) -> None:
    page = open_page(LACKING)
    control = page.tab.locator(".na-lab-ranks")
    expect(control).to_have_text("This kernel")
    control.click()
    page.tab.get_by_label("Number of ranks").fill("2")
    page.tab.get_by_role("button", name="Apply").click()
    dialog = page.tab.get_by_role("dialog")
    expect(dialog).to_contain_text("%pip install notebook-accel")
    page.screenshot("refused")
    dialog.get_by_role("button").last.click()
    expect(control).to_have_text("This kernel")


def test_a_notebook_of_another_language_gets_no_python(open_page: _Open) -> None:
    page = open_page(OTHER_LANGUAGE, "lisp")
    page.run("(+ 1 2)")
    expect(page.tab.locator(".na-lab-ranks:visible")).to_have_count(0)
    toggle = "[data-command='notebook-accel:toggle-accelerate']:visible"
    expect(page.tab.locator(".jp-cell-toolbar:visible")).to_have_count(1)
    expect(page.tab.locator(toggle)).to_have_count(0)
    count = page.tab.locator(".jp-Notebook .jp-Cell").count()
    page.evaluate("""() => window.jupyterapp.commands.execute('notebook-accel:resume', {job: 'abcdef'})""")
    page.screenshot("resume")
    expect(page.tab.get_by_role("alert").first).to_contain_text("The notebook's kernel runs lisp")
    assert page.tab.locator(".jp-Notebook .jp-Cell").count() == count


def test_a_kernel_that_dies_while_it_starts_ranks_is_named(own_page: Page) -> None:
    page = own_page
    pid = int(page.run("print(os.getpid())").output.inner_text())
    page.run(
        "get_ipython().run_line_magic('load_ext', 'notebook_accel')\n"
        "get_ipython().register_magic_function(lambda line: time.sleep(1000), 'line', 'accelerate')"
    )
    control = page.tab.locator(".na-lab-ranks")
    control.click()
    page.tab.get_by_label("Number of ranks").fill("2")
    page.tab.get_by_role("button", name="Apply").click()
    expect(control).to_have_text("Starting…")
    os.kill(pid, signal.SIGKILL)
    dialog = page.tab.get_by_role("dialog")
    expect(dialog).to_contain_text("appears to have died")  # by JupyterLab
    dialog.get_by_role("button", name="Ok").click()
    expect(dialog).to_contain_text("The kernel ended or was restarted before it answered.")
    page.screenshot("died")
    dialog.get_by_role("button", name="Close").click()
    expect(control).to_have_text("This kernel")
    expect(control).to_be_enabled()
