"""`notebook-accel job`, `explain`, and `wait`, as processes that read jobs which this process owns."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from click.testing import CliRunner

from notebook_accel.cli.main import main
from notebook_accel.events import Lines, Location, Metrics, Phase, Stalled
from notebook_accel.launch.job.job_state import Status
from tests.jupyter.conftest import RecordedJob, end, state

__all__ = ["state"]

COMMAND = (sys.executable, "-m", "notebook_accel")


def run(*arguments: str) -> str:
    found = CliRunner().invoke(main, arguments)
    assert found.exit_code == 0, found.output
    return found.output


def start_wait(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*COMMAND, "wait", *arguments, "--json"], stdout=subprocess.PIPE, text=True)


def answer(process: subprocess.Popen[str]) -> tuple[int, dict[str, Any]]:
    out, _ = process.communicate(timeout=120)
    return process.returncode, json.loads(out)


def all_are_waiting(processes: Sequence[subprocess.Popen[str]]) -> bool:
    return all(process.poll() is None for process in processes)


def test_a_job_that_another_process_runs_is_described_and_explained() -> None:
    job = RecordedJob()
    job.reach(25, 4.0)
    text = run("job", job.job.id)
    assert text.startswith("train() on 2 ranks: running, ")
    assert "loss  4, last at step 25" in text
    facts = json.loads(run("job", job.job.id[:8], "--json"))
    assert (facts["format"], facts["done"], facts["metrics"]["loss"]["value"]) == (1, 0.25, 4.0)
    job.add((1, Lines("stdout", ["before"])))
    job.fail("boom")
    assert run("explain", job.job.id).splitlines()[2:] == [
        "failed: it was failed",
        "the last lines of rank 1:",
        "| before",
    ]
    assert json.loads(run("explain", job.job.id, "--json"))["findings"][0]["kind"] == "failed"


def test_a_wait_ends_with_what_it_waits_for() -> None:
    """Takes long on a busy machine: four processes, each of which imports the package."""
    job = RecordedJob()
    job.add((0, Metrics({"loss": 1.0}, 1)), (1, Metrics({"loss": 1.0}, 1)))
    reaches, ends = start_wait(job.job.id, "--until", "loss<0.1"), start_wait(job.job.id)
    code, found = answer(start_wait(job.job.id, "--until", "loss < 0.1", "--timeout", "0.2"))
    assert (code, found["event"], found["job"]["status"]) == (124, "timeout", "running")
    assert found["text"] == "nothing has happened yet; loss is 1, and not < 0.1"
    assert all_are_waiting([reaches, ends])
    job.add((0, Metrics({"loss": 0.05}, 2)), (1, Metrics({"loss": 0.05}, 2)))
    code, found = answer(reaches)
    assert (code, found["event"], found["text"]) == (0, "reached", "loss is 0.05 at step 2")
    assert all_are_waiting([ends])
    end(job)
    code, found = answer(ends)
    assert (code, found["event"], found["job"]["status"]) == (0, "ended", "done")
    assert answer(start_wait(job.job.id, "--until", "loss>1"))[0] == 1


def test_a_job_that_another_process_runs_is_asked_to_stop() -> None:
    job = RecordedJob()
    assert run("stop", job.job.id[:8]).startswith(f"job {job.job.id} was asked to stop")
    assert job.record.stop_requests() == 1
    end(job, Status.CANCELLED)
    assert run("stop", job.job.id) == f"job {job.job.id} has ended already: cancelled\n"


def test_a_wait_ends_at_a_stall() -> None:
    job = RecordedJob()
    waits = start_wait(job.job.id)
    job.job.apply(None, Stalled([Location(0, Phase.WAITING, "barrier")], since=job.job.started))
    job.add()
    code, found = answer(waits)
    assert (code, found["event"], found["job"]["waits"]) == (3, "stalled", "stalled")
    end(job)


def test_a_condition_that_is_none_is_a_mistake_of_the_user() -> None:
    job = RecordedJob()
    waits = subprocess.run(
        [*COMMAND, "wait", job.job.id, "--until", "loss"], capture_output=True, text=True, check=False
    )
    assert (waits.returncode, waits.stdout) == (2, "")
    assert waits.stderr.startswith("error: until='loss' is not a condition: ")
    end(job)
