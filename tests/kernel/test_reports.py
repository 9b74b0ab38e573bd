"""Every report arrives, from real ranks: while a job runs, after it, in another kernel, and of a detached job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.conftest import end
from tests.live_notebook import Notebook

SETUP = """
import math, os, pathlib, time
from notebook_accel import attach, notebook_launcher, report

def work(count, rate, name):
    began = time.time()
    for step in range(count):
        while time.time() < began + step / rate:
            time.sleep(0.0005)
        loss = math.nan if step == 700 else 50.0 if step == 400 else 1 / (1 + step)
        report(loss=loss, step=step)
        if step % 100 == 0:
            report({"val/loss": 2.0}, step=step)
    while not pathlib.Path(name).exists():
        time.sleep(0.005)

def missing(job, count):
    table = job.metrics
    found = []
    for rank in range(2):
        own = table[table["rank"] == rank]
        rows = own[own["val/loss"].isna()]
        found += [rows["step"].tolist() == list(range(count)), own["val/loss"].notna().sum() == count // 100]
        found += [rows["seconds"].is_monotonic_increasing, rows["loss"].isna().sum() == 1]
    return [index for index, is_right in enumerate(found) if not is_right]
"""


@pytest.fixture(scope="module")
def plain() -> Iterator[Notebook]:
    """A notebook whose kernel the tests may end."""
    found = Notebook()
    found.check(SETUP)
    yield found
    end(found)


def test_a_thousand_reports_a_second_of_each_rank_arrive_complete(plain: Notebook, tmp_path: Path):
    """The ranks report for two seconds; then the kernel is restarted, and another attaches."""
    go = tmp_path / "go"
    plain.check(f"job = notebook_launcher(work, (2000, 1000, {str(go)!r}), num_processes=2, block=False)")
    while plain.value("sum(reports.count for _, reports in job.report_log.read())") < 2 * 2020:
        pass  # the time out of the test bounds it
    assert plain.value("missing(job, 2000)") == []
    assert plain.value("job.status.value, len(attach(job).metrics)") == ("running", 4040)
    go.touch()
    cell = plain.check("job.wait(20); job.show()")
    assert plain.value("missing(job, 2000)") == []
    (bundle,) = cell.bundles
    for view in ("text/html", "text/plain"):
        assert "max 50 at step 400" in bundle[view]
        assert "2 NaN, first at step 700" in bundle[view]
        assert "last at step 1999" in bundle[view]
    plain.restart()
    plain.check(SETUP + "job = attach()")
    assert plain.value("job.wait(10), missing(job, 2000)") == (True, [])


def test_every_report_of_a_detached_job_arrives(plain: Notebook, tmp_path: Path):
    go = tmp_path / "go"
    go.touch()
    plain.check(f"job = notebook_launcher(work, (800, 1e9, {str(go)!r}), num_processes=2, detach=True)")
    assert plain.value("job.wait(20), missing(job, 800)") == (True, [])
