"""A sweep on disk, and what of it a later kernel takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from notebook_accel.errors import ConfigurationError
from notebook_accel.launch.journal import records
from notebook_accel.owner import Owner
from notebook_accel.runs import record
from notebook_accel.runs.record import Past, Record
from notebook_accel.runs.trial import Measured, State, Trial

PARAMETERS = [{"lr": 1}, {"lr": 2}, {"lr": 3}]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(records.VARIABLE, str(tmp_path))
    return tmp_path


def ended(number: int, state: State, value: Any = None) -> Trial:
    measured = {"loss": Measured(0.5, 3, 0.25, float("nan"))}
    return Trial(number, PARAMETERS[number], state, "why", 2.0, measured, f"job{number}", value=value)


def write(*trials: Trial) -> Record:
    found = record.create("train", "book", len(PARAMETERS))
    for trial in trials:
        found.add_begin(trial, detached=False)
        found.add_end(trial)
    found.add(owner="")
    assert not found.failed
    return found


def find(resume: bool | str = True, name: str = "train", parameters: Any = PARAMETERS) -> Past | None:
    return record.find(resume, name, "book", len(parameters), parameters)


def test_what_has_ended_well_is_restored_and_the_rest_runs_again() -> None:
    written = write(ended(0, State.DONE, [1]), ended(1, State.FAILED))
    past = find()
    assert past is not None
    assert past.record.id == written.id
    trials = [Trial(number, dict(each)) for number, each in enumerate(PARAMETERS)]
    assert [past.restore(trial) for trial in trials] == [True, False, False]
    first = trials[0]
    assert (first.state, first.why, first.seconds, first.job_id) == (State.DONE, "why", 2.0, "job0")
    assert first.measured["loss"][:3] == (0.5, 3, 0.25)
    assert first.result() == [1]
    assert trials[1].state is State.WAITING


def test_a_result_that_cannot_be_stored_is_not_taken_for_none() -> None:
    write(ended(0, State.DONE, [lambda: 1]), ended(1, State.DONE, None))
    past = find()
    assert past is not None
    lost, none = (Trial(number, dict(PARAMETERS[number])) for number in (0, 1))
    assert past.restore(lost)
    assert past.restore(none)
    assert "it could not be stored" in lost.value_lost
    assert none.result() is None


def test_functions_and_classes_are_recognized_by_their_names() -> None:
    def defined() -> list[dict[str, Any]]:
        """Those that a kernel has once its cell has run."""
        names: dict[str, Any] = {"__name__": "__main__"}
        exec("def loss(): pass\nclass Net: pass", names)
        return [{"of": names["loss"]}, {"of": names["Net"]}, {"of": len}]

    found = record.create("train", "book", 3)
    for number, each in enumerate(defined()):
        found.add_begin(Trial(number, each), detached=False)
    found.add(owner="")
    assert find(parameters=defined()) is not None
    assert find(parameters=defined()[::-1]) is None


class Schedule:
    def __init__(self, rate: float) -> None:
        self.rate = rate

    def __repr__(self) -> str:
        return "Schedule()"


@pytest.mark.parametrize(
    "make", [Schedule, lambda value: torch.arange(2000) * value, lambda value: [np.full(2000, value)]]
)
def test_parameters_that_look_alike_are_not_confused(make: Callable[[int], Any]) -> None:
    found = record.create("train", "book", 2)
    found.add_begin(Trial(0, {"of": make(1)}), detached=False)
    found.add(owner="")
    assert find(parameters=[{"of": make(1)}, {"of": make(2)}]) is not None
    assert find(parameters=[{"of": make(2)}, {"of": make(1)}]) is None


@pytest.mark.parametrize("value", [object(), lambda: 1, [1, object()]])
def test_parameters_that_no_other_kernel_could_recognize_are_refused(value: object) -> None:
    with pytest.raises(ConfigurationError, match="its text contains an address"):
        find(parameters=[{"lr": 1, "of": value}])


def test_a_line_that_is_torn_loses_nothing_after_it() -> None:
    written = write(ended(0, State.DONE))
    path = written.path / "trials"
    path.write_text(path.read_text() + '{"trial": 1, "par')
    written.add_begin(ended(1, State.RUNNING), detached=True)
    past = find()
    assert past is not None
    assert past.jobs == {0: "job0", 1: "job1"}
    assert past.detached == {1}


def test_true_finds_only_an_unfinished_sweep_of_the_same_trials() -> None:
    write(ended(0, State.DONE))
    assert find(name="other") is None
    assert find(parameters=[{"lr": 1}]) is None
    assert find(parameters=[{"lr": 9}, *PARAMETERS[1:]]) is None
    assert record.find(True, "train", "another book", 3, PARAMETERS) is None
    write(*(ended(number, State.DONE) for number in range(3)))
    past = find()
    assert past is not None
    assert not past.is_done


def test_an_id_finds_its_sweep_or_says_why_not() -> None:
    written = write(ended(0, State.DONE))
    past = find(written.id[:5])
    assert past is not None
    assert past.record == written
    with pytest.raises(ConfigurationError, match="other parameters"):
        find(written.id, parameters=[{"lr": 9}, *PARAMETERS[1:]])
    with pytest.raises(ConfigurationError, match="no sweep is recorded"):
        find("zz")


def test_a_sweep_that_runs_is_not_run_twice() -> None:
    written = write(ended(0, State.DONE))
    written.add(owner=str(Owner.this()))
    with pytest.raises(ConfigurationError, match="still runs in process"):
        find()


def test_a_file_of_another_version_is_passed_over(folder: Path) -> None:
    written = write()
    (written.path / "trials").write_text(json.dumps({"something": "else"}))
    assert find() is None


def test_what_cannot_be_written_is_said_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder.joinpath("sweeps").touch()
    found = record.create("train", "book", 3)
    found.add_end(ended(0, State.DONE, [1]))
    said = "".join(capsys.readouterr())
    assert said.count("the sweep is not recorded, so resume won't find it: ") == 1


def test_old_sweeps_are_removed(folder: Path) -> None:
    for _ in range(103):
        record.create("train", "book", 1)
    assert len(list(folder.joinpath("sweeps").iterdir())) == 100
