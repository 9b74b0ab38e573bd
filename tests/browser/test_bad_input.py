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
COPY = """
import shutil
from notebook_accel.launch.journal import records

notebook_launcher(lambda: report(loss=0.5, step=1), num_processes=1, device="cpu", name="sound")
sound = records.all_records()[-1]
copy = records.Record(sound.path.with_name(f"{int(time.time() * 1000):012x}-0badf00dbeef"))
made = shutil.copytree(sound.path, sound.path.with_name("made"))
for state in made.glob("state-*"):
    state.write_bytes(state.read_bytes().replace(b'{"format":', b'{"format":9', 1))
made.rename(copy.path)
"""
"""Records a job, and beside it one as a newer version would."""
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
    page.evaluate("""() => window.jupyterapp.commands.execute('notebook-accel:resume', {job: 'abcdefabcdef'})""")
    page.screenshot("resume")
    expect(page.tab.get_by_role("alert").first).to_contain_text("The notebook's kernel runs lisp")
    assert page.tab.locator(".jp-Notebook .jp-Cell").count() == count


def test_a_kernel_that_dies_while_it_starts_ranks_is_named(own_page: Page) -> None:
    page = own_page
    pid = int(page.run("print(os.getpid())").output.inner_text())
    page.run(
        "get_ipython().run_line_magic('load_ext', 'notebook_accel')\n"
        "def accelerate(line):\n"
        "    open('starting', 'x').close()\n"
        "    time.sleep(1000)\n"
        "get_ipython().register_magic_function(accelerate, 'line')"
    )
    control = page.tab.locator(".na-lab-ranks")
    control.click()
    page.tab.get_by_label("Number of ranks").fill("2")
    page.tab.get_by_role("button", name="Apply").click()
    expect(control).to_have_text("Starting…")
    page.wait_for_file("starting")  # what a kernel has not yet received goes to the next one
    os.kill(pid, signal.SIGKILL)
    dialog = page.tab.get_by_role("dialog")
    expect(dialog).to_contain_text("appears to have died")  # by JupyterLab
    dialog.get_by_role("button", name="Ok").click()
    expect(dialog).to_contain_text("The kernel died or was restarted before it answered.")
    page.screenshot("died")
    dialog.get_by_role("button", name="Close").click()
    expect(control).to_have_text("This kernel")
    expect(control).to_be_enabled()


def test_a_job_that_cannot_be_read_says_so_in_the_sidebar_and_in_its_tab(page: Page) -> None:
    page.run(COPY)
    page.evaluate("window.jupyterapp.commands.execute('notebook-accel:show-jobs')")
    sidebar = page.tab.get_by_role("region", name="Training jobs")
    broken, sound = sidebar.locator(".na-lab-job").nth(0), sidebar.locator(".na-lab-job").nth(1)
    expect(broken).to_contain_text("This job can't be read: its journal was written by another version")
    expect(broken.locator(".na-lab-status")).to_have_text("ended")
    expect(broken.get_by_role("button")).to_have_text(["Delete"])
    expect(sound).to_contain_text("sound")
    expect(sound.get_by_role("button", name="Open")).to_be_visible()
    page.evaluate("window.jupyterapp.commands.execute('notebook-accel:open-job', {job: '0badf00dbeef'})")
    tab = page.tab.locator(".na-lab-job-tab")
    expect(tab).to_contain_text("written by another version")
    page.screenshot("another-version")
    page.evaluate("window.jupyterapp.shell.activateById(window.jupyterapp.shell.widgets('main').next().value.id)")
    page.run("for state in copy.path.glob('state-*'): state.write_bytes(b'\\x00\\xff' * 100)")
    page.evaluate("window.jupyterapp.shell.activateById('notebook-accel-job-0badf00dbeef')")
    expect(tab).to_contain_text("no valid first line")
    broken.get_by_role("button", name="Delete").click()
    page.tab.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(tab).to_contain_text("there is no job 0badf00dbeef")
    expect(sidebar.get_by_text("0badf00dbeef")).to_have_count(0)
    page.tab.locator(".lm-TabBar-tab", has_text="Job 0badf00dbeef").locator(".lm-TabBar-tabCloseIcon").click()
    expect(tab).to_have_count(0)
