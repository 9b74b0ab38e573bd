"""Which values meet the condition of a rule, what is said of them, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from notebook_accel.errors import ConfigurationError
from notebook_accel.events import AttemptStarted, Hello, Metrics, Returned, RuleChanged
from notebook_accel.launch.driver.rule_watch import RuleWatch
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.requests import RankRequest, Replies
from notebook_accel.launch.job.rules import NewRule, check, describe, describe_rules, pack, unpack, when
from notebook_accel.launch.show import console
from tests.launch.journal.cases import Notices

NAN = math.nan


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found = Notices()
    monkeypatch.setattr(console, "current", found)
    return found.told


class Watched:
    """A job of some ranks with rules, and how often these have stopped it."""

    def __init__(self, ranks: int, *rules: NewRule) -> None:
        self.job = Job("train", 0, ranks)
        self.job.begin_with(rules)
        self.job.apply(None, AttemptStarted(0))
        for rank in range(ranks):
            self.job.apply(rank, Hello(1, "host"))
        self.stops: list[int] = []
        self.watch = RuleWatch(self.job, lambda: self.stops.append(1), lambda request, then: then({}))
        self._now = 0.0

    def report(self, rank: int, value: float, step: int | None, name: str = "loss") -> None:
        self.job.apply(rank, Metrics({name: value}, step, at=self.job.started))
        self.poll()

    def poll(self) -> None:
        self._now += 1
        self.watch.poll(self._now)

    def met(self, number: int = 1) -> tuple[int, str]:
        change = self.job.rule_changes[number]
        return change.met, change.last


def met_at(rule: NewRule, values: Sequence[float], steps: Sequence[int] | None = None) -> list[int]:
    """The numbers of the values at which a rule is met, on one rank."""
    watched, found = Watched(1, rule), []
    for number, value in enumerate(values):
        before = watched.met()[0]
        watched.report(0, value, None if steps is None else steps[number])
        if watched.met()[0] > before:
            found.append(number)
    return found


@pytest.mark.parametrize(
    ("rule", "values", "found"),
    [
        (when("loss", is_nan=True), [1, NAN, NAN, 1, NAN], [1, 4]),
        (when("loss", is_nan=True, for_steps=2), [1, NAN, 1, NAN, NAN, NAN], [4]),
        (when("loss", above=10), [10, 11, 12, 1, 13], [1, 4]),
        (when("loss", above=10, for_steps=3), [11, 11, 1, 11, 11, 11, 11], [5]),
        (when("loss", above=10), [NAN, math.inf], [1]),
        (when("loss", below=-1), [0, -1, -2], [2]),
        (when("loss", patience=2), [3, 2, 2, 2, 2, 1, 2, 2], [3, 7]),
        (when("loss", patience=2), [NAN, NAN, NAN], [1]),
        (when("loss", patience=1, min_delta=0.5), [3, 2.6, 2.4], [1]),
        (when("loss", patience=2, mode="max"), [1, 2, 3, 2, 1], [4]),
        (when("loss", patience=3, baseline=1), [5, 4, 3, 2, 2, 0.5, 0.6, 0.7, 0.8], [4, 8]),
        (when("loss", patience=0), [3, 2, 2], [2]),
    ],
    ids=repr,
)
def test_a_rule_takes_effect_when_its_condition_begins_to_be_met(
    rule: NewRule, values: list[float], found: list[int], told: list[str]
) -> None:
    assert met_at(rule, values) == found
    assert len(told) == len(found)


def test_steps_are_counted_by_what_is_reported(told: list[str]) -> None:
    """A metric that is reported every 10 steps is above its limit for 21 steps once three reports are."""
    rule = when("loss", above=10, for_steps=21)
    assert met_at(rule, [11, 11, 11, 11], [10, 20, 30, 40]) == [2]
    assert told == ["train(): loss is 11, above 10, at step 30, for 21 steps"]


def test_a_rule_acts_on_the_mean_over_ranks_once_all_have_reported(told: list[str]) -> None:
    watched = Watched(2, when("loss", above=10, do="stop"))
    watched.report(0, 18, 1)
    assert watched.met() == (0, "")
    watched.report(1, 1, 1)
    assert watched.met() == (0, "")  # 9.5
    watched.report(1, 10, 2)
    watched.report(0, 18, 2)
    text = "loss is 14, above 10, at step 2 (10 on rank 1 to 18 on rank 0)"
    assert (watched.met(), watched.stops) == ((1, text), [1])
    assert told == [f"{text}, so train() is stopped, as its rule says"]


def test_the_rank_with_nan_is_named(told: list[str]) -> None:
    watched = Watched(3, when("loss", is_nan=True))
    for rank, value in enumerate((1.0, NAN, 2.0)):
        watched.report(rank, value, 7)
    assert told == ["train(): loss is NaN at step 7 on rank 1"]


def test_a_late_rank_can_bring_nan_but_does_not_count_twice(told: list[str]) -> None:
    watched = Watched(2, when("loss", is_nan=True), when("loss", patience=2))
    watched.report(0, 1.0, 1)
    watched.report(1, 1.0, 1)
    watched.job.apply(1, Returned())
    watched.report(0, 1.0, 2)
    watched.report(1, NAN, 2)
    assert (watched.met(1)[0], watched.met(2)[0]) == (1, 0)


def test_rules_are_added_and_removed_while_the_job_runs(told: list[str]) -> None:
    watched = Watched(1)
    replies: list[Replies] = []
    watched.watch.request(RankRequest(RuleChanged(0, when("loss", above=1).rule)), replies.append)
    watched.poll()
    assert watched.job.rules == {1: "if loss is above 1: say so"}
    watched.report(0, 2, 1)
    assert len(told) == 1
    (reply,) = replies[0].values()
    assert isinstance(reply, RuleChanged)
    watched.watch.request(RankRequest(RuleChanged(reply.number, reply.rule, removed=True)), replies.append)
    watched.poll()
    for step, value in enumerate((0, 2), 2):
        watched.report(0, value, step)
    assert (watched.job.rules, len(told)) == ({}, 1)
    watched.watch.request(RankRequest(Hello(1, "")), replies.append)  # not its own
    assert replies[-1] == {}


def test_a_rule_whose_metric_never_comes_is_named_at_the_end(told: list[str]) -> None:
    watched = Watched(1, when("val/loss", patience=3), when("loss", is_nan=True, do="pause"))
    assert describe_rules(watched.job)[0] == "rule 1: if val/loss has not improved for 3 reports: say so"
    watched.report(0, 1.0, 1)
    assert describe_rules(watched.job)[0].endswith(" (val/loss is not reported so far; did you mean loss?)")
    watched.report(0, NAN, 2)
    watched.watch.close(is_complete=True)
    assert told[-1] == (
        "a rule for val/loss had no effect: train() has not reported that; it has reported loss; did you mean loss?"
    )
    count = len(told)
    watched.watch.close(is_complete=False)  # as after a failure
    assert len(told) == count


def test_what_is_met_at_the_end_says_that_nothing_more_can_be_done(told: list[str]) -> None:
    watched = Watched(1, when("loss", is_nan=True, do="pause"))
    watched.job.apply(0, Metrics({"loss": NAN}, 5, at=watched.job.started))
    watched.watch.close(is_complete=True)
    assert told == ["loss is NaN at step 5, but train() ended before its rule could act"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "has no condition"),
        ({"is_nan": True, "above": 1}, "several conditions"),
        ({"above": 1, "below": 2}, "several conditions"),
        ({"above": NAN}, "above must be a number"),
        ({"above": "1"}, "above must be a number"),
        ({"above": 1, "min_delta": 0.1, "mode": "min"}, "min_delta, mode has an effect only with patience="),
        ({"above": 1, "for_steps": 0}, "for_steps must be a whole number of at least 1"),
        ({"patience": -1}, "patience must be a whole number of at least 0"),
        ({"patience": 3, "for_steps": 2}, "leave out for_steps"),
        ({"patience": 3, "mode": "least"}, "mode must be 'min', 'max', or 'auto'"),
        ({"is_nan": 1}, "is_nan must be True or False"),
        ({"is_nan": True, "do": "pausee"}, "did you mean pause"),
        ({"is_nan": True, "do": 3}, "do=3 is unknown; choose one of 'notify'"),
    ],
    ids=str,
)
def test_a_rule_that_cannot_work_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message.replace("(", r"\(")):
        when("loss", **arguments)


def test_a_metric_of_unknown_direction_needs_a_mode() -> None:
    with pytest.raises(ConfigurationError, match="add mode='min' or mode='max'"):
        when("reward", patience=3)
    assert when("val/accuracy", patience=3).rule.mode == "max"


@pytest.mark.parametrize("rules", ["loss", when("loss", above=1), [None], ["loss"], {1: 2}])
def test_rules_are_a_list_of_rules(rules: Any) -> None:
    with pytest.raises(ConfigurationError, match="rules"):
        check(rules)


def test_rules_travel_with_the_functions_that_they_call() -> None:
    (rule,) = unpack(pack([when("loss", above=1, do=lambda met: met.step)]))
    assert describe(rule.rule) == "if loss is above 1: call <lambda>()"
    assert rule.function is not None
    assert unpack(pack([])) == ()
