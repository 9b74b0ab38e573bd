"""The panel from the kernel's side: what a browser is told, and what comes of what it says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live_notebook import Cell, Notebook
from tests.panel.test_panel_state import merged

pytestmark = pytest.mark.versions

VIEW = "application/vnd.jupyter.widget-view+json"
SETUP = """
from notebook_accel import report, set_view
from tqdm import trange

def work(go_on):
    for step in trange(3, mininterval=0):
        report(loss=step, step=step)
        print("step", step)
        while step == 2 and not os.path.exists(go_on):
            time.sleep(0.01)
"""


@pytest.fixture
def prepared(notebook: Notebook) -> Notebook:
    notebook.check(SETUP)
    # Another file's cells may have left widgets without an answer in this kernel, which then draws no more of them.
    notebook.check("from notebook_accel.notebook.views import widget_support; widget_support.current.answered(None)")
    notebook.widgets.clear()
    return notebook


@pytest.fixture
def go_on(tmp_path: Path) -> Path:
    return tmp_path / "go_on"


class Browser:
    """What a browser would draw of the panel below a cell."""

    def __init__(self, notebook: Notebook, cell: Cell, widget: str | None = None) -> None:
        try:
            notebook.read_while(lambda: not cell.widgets and not cell.error)
        except TimeoutError:
            raise AssertionError(f"no panel: {cell!r}, {cell.bundles}; panels: {panels(notebook)}") from None
        self._notebook = notebook
        self.widget = widget or cell.widgets[0]

    @property
    def said(self) -> list[tuple[str, dict[str, Any], list[bytes]]]:
        return self._notebook.widgets[self.widget]

    @property
    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = {}
        for kind, data, buffers in self.said:
            whole = data.get("state", {}).get("keyframe")
            if whole:
                state = whole["state"]
            elif kind == "comm_msg" and buffers:
                state = merged(state, json.loads(buffers[0]).get("patch", {}))
        return state

    @property
    def acknowledged(self) -> list[int]:
        updates = [json.loads(buffers[0]) for _, data, buffers in self.said if "content" in data and buffers]
        return [update["ack"] for update in updates if "ack" in update]

    @property
    def is_closed(self) -> bool:
        return self.said[-1][0] == "comm_close"

    def say(self, **content: Any) -> None:
        self._notebook.say(self.widget, content)

    def say_while_busy(self, **content: Any) -> None:
        self._notebook.say_while_busy(self.widget, content)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        self._notebook.read_while(lambda: not condition())


def panels(notebook: Notebook) -> list[str]:
    """What a browser calls the panels that it knows of."""
    opened = {widget: said[0][1] for widget, said in notebook.widgets.items() if said[0][0] == "comm_open"}
    return [widget for widget, data in opened.items() if "keyframe" in data["state"]]


def in_background(notebook: Notebook, go_on: Path, size: int = 2) -> tuple[Cell, Browser]:
    code = f"job = notebook_launcher(work, ({str(go_on)!r},), {size}, block=False)"
    cell = notebook.finish(notebook.begin_in_browser(code))
    return cell, Browser(notebook, cell)


def test_a_browser_is_told_of_every_rank_as_it_goes_on(prepared: Notebook, go_on: Path):
    cell, browser = in_background(prepared, go_on)
    browser.say(cmd="ready")
    browser.wait_for(lambda: all("2/3" in rank["text"] for rank in browser.state["ranks"].values()))
    browser.wait_for(lambda: "step 2" in browser.state["ranks"]["1"]["lines"].values())
    assert set(cell.bundles[0]) == {VIEW, "text/html", "text/plain"}
    go_on.touch()
    browser.wait_for(lambda: browser.state["head"]["status"] == "done")


@pytest.mark.smoke
def test_at_the_end_html_and_text_take_the_place_of_the_widget(prepared: Notebook, go_on: Path):
    cell, browser = in_background(prepared, go_on)
    browser.say(cmd="ready")
    go_on.touch()
    browser.wait_for(lambda: VIEW not in cell.bundles[0] and browser.is_closed)
    assert set(cell.bundles[0]) == {"text/html", "text/plain"}
    assert "done" in cell.bundles[0]["text/plain"]
    assert "<img" in cell.bundles[0]["text/html"]


def test_who_comes_late_is_told_the_whole(prepared: Notebook, go_on: Path):
    _, browser = in_background(prepared, go_on)
    browser.wait_for(lambda: all("2/3" in rank["text"] for rank in browser.state["ranks"].values()))
    before = len(browser.said)
    browser.say(cmd="ready")
    browser.wait_for(lambda: any("keyframe" in data.get("state", {}) for _, data, _ in browser.said[before:]))
    whole = next(data["state"]["keyframe"] for _, data, _ in browser.said[before:] if "state" in data)
    assert "2/3" in whole["state"]["ranks"]["0"]["text"]
    assert browser.acknowledged == [0]
    go_on.touch()


def test_a_browser_that_answers_before_the_panel_is_displayed_sees_it(prepared: Notebook, go_on: Path):
    prepared.check("""
    import threading
    from notebook_accel.panel import html_page as html
    from notebook_accel.notebook.views.widget_support import Browsers

    begins_to_draw, has_answered, answered = threading.Event(), threading.Event(), Browsers.answered
    def answer(self, shown):
        answered(self, shown)
        has_answered.set()
    Browsers.answered = answer

    drawn = html.bundle
    def draw(*arguments, **options):  # on a slow machine
        begins_to_draw.set()
        has_answered.wait()
        html.bundle = drawn
        return drawn(*arguments, **options)
    html.bundle = draw
    """)
    cell = prepared.begin_in_browser(f"job = notebook_launcher(work, ({str(go_on)!r},), 2, block=False)")
    prepared.finish(cell)
    prepared.read_while(lambda: not panels(prepared))
    prepared.check("begins_to_draw.wait()")
    assert not cell.bundles
    prepared.say(*panels(prepared), {"cmd": "ready"})
    browser = Browser(prepared, cell)
    go_on.touch()
    browser.wait_for(lambda: "done" in cell.text)


def test_stop_cancels_a_job_in_the_background(prepared: Notebook, go_on: Path):
    cell, browser = in_background(prepared, go_on)
    browser.wait_for(lambda: "2/3" in browser.state["ranks"]["1"]["text"])
    assert browser.state["head"]["blocking"] is False
    browser.say(cmd="stop", click=1)
    browser.wait_for(lambda: "cancelled" in cell.text)
    assert browser.acknowledged == [1]
    assert prepared.value("job.status.value") == "cancelled"


def test_a_second_stop_kills_at_once(prepared: Notebook, tmp_path: Path):
    prepared.check("""
    def stubborn(there):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        open(there + os.environ["RANK"], "x").close()
        for step in trange(10**9):
            time.sleep(0.01)
    """)
    code = f"job = notebook_launcher(stubborn, ({str(tmp_path / 'there')!r},), 2, block=False)"
    cell = prepared.finish(prepared.begin_in_browser(code))
    browser = Browser(prepared, cell)
    browser.wait_for(lambda: len(list(tmp_path.iterdir())) == 2)
    browser.say(cmd="stop", click=1)
    browser.wait_for(lambda: browser.state["head"]["stopping"] == 1)
    assert "Click again to kill them now" in browser.state["head"]["note"]
    browser.say(cmd="stop", click=1)  # the same click, by a longer way
    browser.wait_for(lambda: browser.acknowledged == [1, 1])
    assert browser.state["head"]["stopping"] == 1
    browser.say(cmd="stop", click=2)
    browser.wait_for(lambda: "cancelled" in cell.text)
    assert prepared.value("[state.exited.signal for state in job.ranks]") == [9, 9]


def test_a_blocking_run_says_that_an_interrupt_is_meant_for_it(prepared: Notebook, go_on: Path):
    cell = prepared.begin_in_browser(f"notebook_launcher(work, ({str(go_on)!r},), 2)")
    browser = Browser(prepared, cell)
    browser.wait_for(lambda: "2/3" in browser.state["ranks"]["1"]["text"])
    assert browser.state["head"]["blocking"] is True
    prepared.interrupt()
    browser.wait_for(lambda: cell.ended)
    assert cell.error == "KeyboardInterrupt"
    assert set(cell.bundles[0]) == {"text/html", "text/plain"}
    assert "interrupted" in cell.text


def test_a_panel_shows_where_a_rank_is_and_all_its_lines(prepared: Notebook, go_on: Path):
    prepared.check("""
    def chatty(go_on):
        for line in range(150):
            print("line", line)
        wait_for(go_on)
    """)
    cell = prepared.begin_in_browser(f"notebook_launcher(chatty, ({str(go_on)!r},), 2)")
    browser = Browser(prepared, cell)

    def rank() -> dict[str, Any]:
        return dict(browser.state["ranks"]["1"])

    browser.wait_for(lambda: len(rank()["lines"]) == 50 and "line 149" in rank()["lines"].values())
    assert rank()["stack"] == ""
    browser.say_while_busy(cmd="stack", rank=1)
    browser.say_while_busy(cmd="expanded", ranks=[1])
    browser.wait_for(lambda: "in chatty: " in rank()["stack"] and len(rank()["lines"]) == 150)
    assert browser.state["ranks"]["0"]["stack"] == ""
    assert len(browser.state["ranks"]["0"]["lines"]) == 50
    browser.say_while_busy(cmd="stack", rank=7)  # there is no such rank
    browser.say_while_busy(cmd="expanded", ranks=[])
    browser.wait_for(lambda: len(rank()["lines"]) == 50)
    go_on.touch()
    browser.wait_for(lambda: cell.ended)
    assert cell.error is None


def test_a_failed_run_leaves_html_and_text(prepared: Notebook):
    cell = prepared.begin_in_browser("notebook_launcher(lambda: [1 / (2 - n) for n in trange(5)], num_processes=2)")
    prepared.finish(cell)
    assert cell.error == "RankError"
    assert set(cell.bundles[0]) == {"text/html", "text/plain"}
    assert "ZeroDivisionError" in cell.bundles[0]["text/html"]


def test_a_job_shown_again_is_live_there_too(prepared: Notebook, go_on: Path):
    first, one = in_background(prepared, go_on)
    one.say(cmd="ready")
    second = prepared.finish(prepared.begin_in_browser("job.show()"))
    other = Browser(prepared, second)
    for browser in (one, other):
        browser.wait_for(lambda browser=browser: "2/3" in browser.state["ranks"]["1"]["text"])  # type: ignore[misc]
    other.say(cmd="stop", click=1)
    for cell in (first, second):
        prepared.read_while(lambda cell=cell: "cancelled" not in cell.text)  # type: ignore[misc]
        assert VIEW not in cell.bundles[0]


def test_what_is_no_notebook_gets_no_widget(prepared: Notebook, go_on: Path):
    go_on.touch()
    cell = prepared.check(f"notebook_launcher(work, ({str(go_on)!r},), 2)")
    assert set(cell.bundles[0]) == {"text/html", "text/plain"}
    assert not prepared.widgets


def test_a_browser_that_never_answers_is_given_html(prepared: Notebook, go_on: Path):
    cell, browser = in_background(prepared, go_on)
    browser.wait_for(lambda: VIEW not in cell.bundles[0])
    assert not prepared.finish(prepared.begin_in_browser("job.show()")).bundles[0].get(VIEW)
    browser.say(cmd="ready")  # it was only slow
    browser.wait_for(lambda: VIEW in cell.bundles[0])
    go_on.touch()
    browser.wait_for(lambda: "done" in cell.text)


def test_a_panel_that_cannot_be_drawn_ends_no_training(prepared: Notebook):
    prepared.check("""
    from notebook_accel.panel import panel_state
    look, panel_state.StateMaker.update_metrics = panel_state.StateMaker.update_metrics, None
    """)
    cell = prepared.finish(prepared.begin_in_browser("notebook_launcher(lambda: 6 * 7, num_processes=2)"))
    prepared.check("panel_state.StateMaker.update_metrics = look")
    assert cell.value == "[42, 42]"
    assert "can no longer be shown here: TypeError: 'NoneType' object is not callable (" in cell.stderr


@pytest.fixture
def without_anywidget(prepared: Notebook) -> Iterator[Notebook]:
    prepared.check("hidden = sys.modules.pop('anywidget', None); sys.modules['anywidget'] = None")
    yield prepared
    prepared.check("sys.modules.pop('anywidget'); hidden and sys.modules.update(anywidget=hidden)")


def test_without_anywidget_there_is_html(without_anywidget: Notebook, go_on: Path):
    go_on.touch()
    code = f"notebook_launcher(work, ({str(go_on)!r},), 2)"
    cell = without_anywidget.finish(without_anywidget.begin_in_browser(code))
    assert cell.error is None
    assert set(cell.bundles[0]) == {"text/html", "text/plain"}


def test_to_ask_for_the_panel_without_anywidget_is_an_error_that_names_what_to_install(without_anywidget: Notebook):
    said = without_anywidget.run("set_view('widget')").traceback
    assert "the view 'widget' needs anywidget" in said
    assert "pip install anywidget" in said
