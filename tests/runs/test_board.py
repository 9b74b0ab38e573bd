"""What a sweep shows: the board, the picture, and what can be asked of its trials."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from notebook_accel.errors import ConfigurationError, JobLostError
from notebook_accel.launch.show import console
from notebook_accel.launch.show.console import Terminal
from notebook_accel.runs import board
from notebook_accel.runs.board import Board, Facts
from notebook_accel.runs.runs import Runs
from notebook_accel.runs.trial import Measured, State, Trial


def trial(number: int, state: State = State.DONE, **measured: float) -> Trial:
    values = {name: Measured(value, 9, value, value) for name, value in measured.items()}
    return Trial(number, {"lr": 10.0**-number, "name": f"<b>{number}"}, state, "", 1.5, values, f"job{number}")


class Schedule:
    """Remembers what it is asked."""

    def __init__(self) -> None:
        self.stopped: list[int] = []

    def wait(self, timeout: float | None = None) -> bool:
        return timeout == 1.0

    def stop(self, numbers: Any) -> None:
        self.stopped += numbers


def runs(*trials: Trial, metric: str | None = None, sign: int = 0) -> Runs:
    facts = Facts("train()", trials, metric, sign)
    return Runs("abc", facts, Schedule(), Board(facts))  # type: ignore[arg-type]


def test_the_headline_counts_and_names_the_best() -> None:
    facts = Facts("train()", [trial(0, loss=3), trial(1, loss=2), trial(2, State.FAILED, loss=1)], None, 0)
    assert facts.headline == "train() in 3 trials: 2 done, 1 failed; best loss 2: trial 1, lr=0.1 name=<b>1"


def test_the_best_is_by_the_goal_and_only_of_trials_that_count() -> None:
    every = [trial(0, accuracy=0.5), trial(1, State.STOPPED, accuracy=0.75), trial(2, State.FAILED, accuracy=0.9)]
    found = runs(*every, trial(3, accuracy=math.nan), trial(4, accuracy=math.inf))
    assert found.best("accuracy").number == 1
    assert found.best("accuracy", "min").number == 0
    with pytest.raises(ConfigurationError, match="neither 'min' nor 'max'"):
        found.best("accuracy", "least")
    with pytest.raises(ConfigurationError, match="did you mean 'accuracy'"):
        found.best("accurac")


def test_a_metric_whose_name_tells_nothing_needs_a_goal() -> None:
    found = runs(trial(0, reward=1), trial(1, reward=2))
    with pytest.raises(ConfigurationError, match="pass goal="):
        found.best()
    assert found.best(goal="max").number == 1
    assert runs(*found.trials, metric="reward", sign=1).best().number == 1
    assert "best" not in repr(found).splitlines()[0]


def test_without_metrics_the_error_says_how_to_report_one() -> None:
    with pytest.raises(ConfigurationError, match="in the function does"):
        runs(trial(0)).best()


def test_the_board_is_escaped_and_marks_the_best() -> None:
    drawn = board.draw(Facts("train()", [trial(0, loss=3), trial(1, loss=2)], None, 0), {}, live=False)
    assert "&lt;b&gt;1" in drawn
    assert "<b>1<" in drawn
    assert drawn.count(">best<") == 1
    ElementTree.fromstring(drawn)


def test_many_trials_are_unfolded_at_the_end_and_fewer_while_they_run() -> None:
    facts = Facts(
        "train()", [*(trial(n) for n in range(100)), *(trial(n, State.WAITING) for n in range(100, 200))], None, 0
    )
    live = board.draw(facts, {}, live=True)
    assert live.count("<tr") == 41
    assert "40 of the trials are shown" in live
    assert "140 more trials" in board.draw(facts, {}, live=False)
    assert len(repr(runs(*facts.trials)).splitlines()) == 202


def test_where_displays_cannot_be_updated_each_end_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    facts = Facts("train()", [trial(0, loss=3)], None, 0)
    with console.using(Terminal()):
        shown = Board(facts)
    shown.refresh()
    shown.note_end(facts.trials[0])
    shown.finish()
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "trial 0  lr=1 name=<b>0  done  loss 3  1.5 s",
        "train() in 1 trial: 1 done; best loss 3: trial 0, lr=1 name=<b>0",
    ]


def test_a_row_of_the_data_frame_has_exact_values_and_loses_none() -> None:
    found = runs(trial(0, loss=3), trial(1, lr=7.0))
    frame: Any = found.dataframe()
    assert list(frame["lr"]) == [1.0, 0.1]
    assert frame["lr (metric)"][1] == 7.0
    assert list(frame["job"]) == ["job0", "job1"]


def test_results_are_those_of_trials_that_are_done() -> None:
    done, failed, lost = trial(0), trial(1, State.FAILED), trial(2)
    done.value = [1, 2]
    assert runs(done, failed).results == [[1, 2], None]
    lost.value_lost = "too large"
    with pytest.raises(JobLostError, match="trial 2 is done, but its result is not available: too large"):
        _ = runs(done, lost).results


def test_stop_names_trials() -> None:
    schedule = Schedule()
    facts = Facts("train()", [trial(0), trial(1)], None, 0)
    found = Runs("abc", facts, schedule, Board(facts))  # type: ignore[arg-type]
    found.stop(1)
    found.stop()
    assert schedule.stopped == [1, 0, 1]
    assert found.wait(1.0)
    with pytest.raises(ConfigurationError, match="they are 0 to 1"):
        found.stop(2)


def test_the_picture_has_an_axis_for_each_parameter_and_a_line_for_each_trial() -> None:
    found = runs(*(trial(n, loss=n) for n in range(1, 6)), trial(0, State.FAILED, loss=0))
    picture = found.parallel_coordinates()
    svg = ElementTree.fromstring(picture.svg)
    texts = [each.text for each in svg.iter() if each.tag.endswith("text")]
    assert texts.count("lr (log)") == texts.count("name") == texts.count("loss") == 1
    assert sum(each.tag.endswith("polyline") for each in svg.iter()) == 5
    assert repr(picture) == "5 trials by loss; dashed: the best, trial 1, 1: lr=0.1 name=<b>1"
    assert "alt=" in picture._repr_html_()


def test_the_picture_of_equal_values_is_drawn() -> None:
    assert "nan" not in runs(trial(0, loss=1), trial(0, loss=1)).parallel_coordinates().svg
