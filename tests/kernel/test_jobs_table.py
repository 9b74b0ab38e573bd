"""`%accelerate jobs`: a table with buttons while jobs run, and text elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live_notebook import Notebook

pytestmark = pytest.mark.versions

VIEW = "application/vnd.jupyter.widget-view+json"
SETUP = """
def work(go_on):
    print("begun")
    while not os.path.exists(go_on):
        time.sleep(0.01)
"""


@pytest.fixture
def go(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "go"
    (tmp_path / "go").touch()


def test_jobs_are_stopped_and_shown_from_the_table(notebook: Notebook, go: Path):
    notebook.check(SETUP)
    launch = f"job = notebook_launcher(work, ({str(go)!r},), 2, block=False)"
    notebook.read_until(notebook.check(launch), "begun")
    notebook.check("from notebook_accel.launch.driver import attach as known")
    notebook.read_while(lambda: not notebook.value("any(each.id == job.id for each in known.jobs())"))
    job = notebook.value("job.id")
    listed = notebook.check("%accelerate jobs")
    assert job in str(listed.value)
    assert not listed.bundles
    table = notebook.finish(notebook.begin_in_browser("%accelerate jobs"))
    assert set(table.bundles[0]) == {VIEW, "text/html", "text/plain"}
    assert job in table.bundles[0]["text/html"]
    widget = table.bundles[0][VIEW]["model_id"]  # type: ignore[index]
    notebook.say(widget, {"cmd": "attach", "job": job})
    notebook.read_while(lambda: len(table.bundles) < 2)
    assert "work()" in table.bundles[1]["text/plain"]
    notebook.say(widget, {"cmd": "stop", "job": job})
    notebook.read_while(lambda: VIEW in table.bundles[0])  # nothing is left that needs the kernel
    assert "cancelled" in table.bundles[0]["text/html"]
    assert notebook.value("job.status.value") == "cancelled"
    again = notebook.finish(notebook.begin_in_browser("%accelerate jobs"))
    assert job in str(again.value)
    assert not again.bundles
