"""An output that names its job: for which pages it is chosen, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import IPython
import IPython.display
import pytest

from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.journal import pages, records
from notebook_accel.launch.journal.writing import Journal
from notebook_accel.notebook import views
from notebook_accel.notebook.views.job_output import MIME, JobOutput
from notebook_accel.notebook.views.widget import WidgetView

PAGE = "6f1c5a3e-0b1d-4c52-9a53-7b0c1c7f7f10"


@pytest.fixture(autouse=True)
def cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell that a page of JupyterLab has sent."""
    monkeypatch.setenv("NOTEBOOK_ACCEL_STATE", str(tmp_path))
    request = {"header": {"session": PAGE}, "metadata": {"cellId": "1c2b"}}
    kernel = SimpleNamespace(get_parent=lambda: request)
    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(kernel=kernel))


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, Any]]:
    """What is displayed, and then updated."""
    found: list[Mapping[str, Any]] = []
    handle = SimpleNamespace(update=lambda bundle, raw: found.append(bundle))
    monkeypatch.setattr(IPython.display, "display", lambda bundle, **_: found.append(bundle) or handle)
    return found


def test_a_page_that_has_announced_itself_draws_the_panel_and_another_gets_the_widget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert views.choose() is WidgetView
    assert views.described()[0] == "panel, as a widget"
    pages.announce(PAGE)
    assert views.choose() is JobOutput
    assert views.described()[0] == "panel"
    monkeypatch.setenv("NOTEBOOK_ACCEL_VIEW", "widget")  # which is the panel, whoever draws it
    assert views.choose() is JobOutput
    monkeypatch.setenv("NOTEBOOK_ACCEL_VIEW", "text")
    assert views.choose().__name__ == "TextView"
    assert views.described() == ("text", "NOTEBOOK_ACCEL_VIEW")


def test_the_output_names_the_job_and_has_html_beside_it(shown: list[Mapping[str, Any]]) -> None:
    job = Job("train", 0, 2)
    Journal(job)
    view = JobOutput(job)
    assert records.are_of(job.id), "the page would ask for it in vain"
    assert shown[0][MIME]["job"] == job.id
    assert shown[0][MIME]["state"]["head"]["name"] == "train()"
    view.refresh()
    job.finish(Status.DONE)
    view.finish()
    assert shown[-1][MIME] == {"job": job.id}
    assert "done" in shown[-1]["text/html"]
    assert "done" in shown[-1]["text/plain"]


def test_a_job_that_cannot_be_recorded_is_shown_as_html(shown: list[Mapping[str, Any]]) -> None:
    job = Job("train", 0, 2)
    view = JobOutput(job)
    assert set(shown[-1]) == {"text/html", "text/plain"}
    job.finish(Status.DONE)
    view.finish()
    assert "done" in shown[-1]["text/plain"]
    assert MIME not in shown[-1]
