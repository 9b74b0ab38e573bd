"""Watches the metrics that a job has rules for, and does what they say once their conditions are met.

It reads the steps as the charts draw them, merged over ranks, several times a second. A rank takes no part in it: what
is done at a step is a request as any other, for which `rank_requests.py` finds a step that no rank has passed.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from notebook_accel.errors import LaunchError, NotebookAccelError, did_you_mean
from notebook_accel.events import Rule, RuleChanged
from notebook_accel.events.control import CHECKPOINT, END_AFTER_EPOCH, PAUSE
from notebook_accel.events.rules import CALL, NOTIFY, STOP
from notebook_accel.launch.job import progress
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.metric_charts import DrawnStep, DrawnSteps, Key
from notebook_accel.launch.job.requests import RankRequest, Replies, RequestRanks
from notebook_accel.launch.job.rules import RuleMet
from notebook_accel.launch.job.text import value as shown
from notebook_accel.launch.show import console
from notebook_accel.launch.system import own_process
from notebook_accel.rank_spans import counted, named

_INTERVAL = 0.05
"""Seconds between two looks at the charts."""


class RuleWatch:
    """The rules of one call, which begin with it. Its methods are called on the thread of the event loop.

    Args:
        job: The job of the call.
        stop: Stops the call.
        others: Takes the requests that are not about rules.
    """

    def __init__(self, job: Job, stop: Callable[[], object], others: RequestRanks) -> None:
        self._job = job
        self._stop = stop
        self._others = others
        self._notices: deque[str] = deque()
        """What the threads that act on rules have to say."""
        self._conditions: dict[int, _Condition] = {}
        self._steps: dict[str, DrawnSteps] = {}
        self._due = 0.0
        self._is_over = False
        """Whether the call has ended."""
        for change in job.rule_changes.values():
            if not change.removed:
                self._watch(change)

    def request(self, request: RankRequest, then: Callable[[Replies], object]) -> None:
        """Adds or removes a rule, or passes the request on."""
        if isinstance(request.event, RuleChanged):
            then({0: self._change(request.event)})
        else:
            self._others(request, then)

    def poll(self, now: float) -> None:
        """Looks at what has been drawn since the last time."""
        while self._notices:
            console.current.notice(self._notices.popleft())
        if not self._conditions or now < self._due:
            return
        self._due = now + _INTERVAL
        running = progress.running(self._job)
        for metric, steps in self._steps.items():
            self._job.charts.settle(metric, running)
            for step in steps.take():
                for number, condition in list(self._conditions.items()):
                    if condition.rule.metric == metric and condition.is_met_by(step):
                        self._act(number, condition, step)

    def close(self, *, is_complete: bool) -> None:
        """Looks for the last time; if the call has run to its end, also names the rules that had no effect."""
        self._is_over = True
        self.poll(math.inf)
        known = set(self._job.charts.names)
        missing = sorted({each.rule.metric for each in self._conditions.values()} - known)
        if is_complete and missing:
            reported = f"it has reported {', '.join(sorted(known))}" if known else "it has reported no metrics"
            reported += "".join(did_you_mean(each, known) for each in missing[:1])
            which = "a rule" if len(missing) == 1 else "rules"
            console.current.notice(
                f"{which} for {', '.join(missing)} had no effect: {self._job.title} has not reported that; {reported}"
            )

    def _change(self, change: RuleChanged) -> RuleChanged:
        functions = self._job.runner.rule_functions or {}
        if change.removed:
            change = replace(self._job.rule_changes.get(change.number, change), removed=True)
            self._conditions.pop(change.number, None)
            functions.pop(change.number, None)
        else:
            token, change = change.number, replace(change, number=len(self._job.rule_changes) + 1)
            if token in functions:
                functions[change.number] = functions.pop(token)
            self._watch(change)
        self._job.apply(None, change)
        return change

    def _watch(self, change: RuleChanged) -> None:
        metric = change.rule.metric
        self._conditions[change.number] = _Condition(change.rule)
        if metric not in self._steps:
            self._steps[metric] = self._job.charts.follow(metric)

    def _act(self, number: int, condition: _Condition, step: DrawnStep) -> None:
        job = self._job
        met = RuleMet(job, condition.rule.metric, step.values.mean, step.key[1], *self._told(condition, step))
        change = job.rule_changes[number]
        job.apply(None, replace(change, met=change.met + 1, last=met.text))
        if change.rule.action == NOTIFY:
            console.current.notice(f"{job.title}: {met.text}")
            return
        if self._is_over and change.rule.action != CALL:
            console.current.notice(f"{met.text}, but {job.title} ended before its rule could act")
            return
        if change.rule.action == STOP:
            console.current.notice(f"{met.text}, so {job.title} is stopped, as its rule says")
            self._stop()
            return
        try:  # on a thread of its own, since it waits for the ranks, or is the user's
            own_process.start_thread(partial(self._run, number, change.rule, met), "rule")
        except LaunchError as error:
            console.current.notice(f"{met.text}, but its rule could do nothing: {error}")

    def _run(self, number: int, rule: Rule, met: RuleMet) -> None:
        job, done = self._job, f"{met.text}, so {self._job.title}"
        functions: Mapping[int, Callable[[RuleMet], object]] = job.runner.rule_functions or {}
        try:
            if rule.action == PAUSE:
                done += f" is paused after step {job.pause()}; %accelerate resume continues it"
            elif rule.action == CHECKPOINT:
                done += f" has saved {job.checkpoint()}"
            elif rule.action == END_AFTER_EPOCH:
                done += f" ends after {job.end_after_epoch()}"
            else:
                assert rule.action == CALL
                functions[number](met)
                return
        except (NotebookAccelError, TimeoutError) as error:
            done = f"{met.text}, but its rule could not act: {error}"
            if rule.action == PAUSE and job.is_paused:  # by another rule, or by the user
                done = f"{met.text}, and {job.title} is paused already"
        except Exception as error:  # of the user's function
            done = f"{met.text}, and {rule.function}(), which its rule calls, failed: {type(error).__name__}: {error}"
        if self._is_over:
            console.current.notice(done)
        else:
            self._notices.append(done)

    def _told(self, condition: _Condition, step: DrawnStep) -> tuple[list[int], str]:
        """The ranks that a sentence about this step names, and the sentence."""
        rule, first = condition.rule, self._job.launched.first
        by_rank = [(first + rank, value) for rank, value in step.by_rank]
        ranks = sorted({rank for rank, value in by_rank if condition.holds(value)} or {rank for rank, _ in by_rank})
        where = f"at {'step' if step.by_step else 'report'} {step.key[1]}"
        text = f"{rule.metric} {_stated(rule, step, condition)} {where}"
        if len(self._job.ranks) > 1 and rule.patience is None and ranks:
            text += f" on {named(ranks)}" if rule.is_nan else f" ({_spread(by_rank)})"
        if rule.patience is not None:
            text += condition.waited()
        elif rule.for_steps > 1:
            text += f", for {rule.for_steps} steps"
        return ranks, text


def _stated(rule: Rule, step: DrawnStep, condition: _Condition) -> str:
    if rule.is_nan:
        return "is NaN"
    text = f"is {shown(step.values.mean)}"
    if rule.patience is not None:
        return text
    return f"{text}, {'above' if rule.above is not None else 'below'} {shown(condition.limit)},"


def _spread(by_rank: Sequence[tuple[int, float]]) -> str:
    (low_rank, low), (high_rank, high) = (each(by_rank, key=lambda report: report[1]) for each in (min, max))
    if low_rank == high_rank or shown(low) == shown(high):
        return f"{shown(low)} on {named({rank for rank, _ in by_rank})}"
    return f"{shown(low)} on rank {low_rank} to {shown(high)} on rank {high_rank}"


class _Condition:
    """Whether a rule's condition is met, step by step."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._last: Key | None = None
        """The last step."""
        self._is_armed = True
        """Whether the condition was not met the last time."""
        self._steps = 0
        """For how many steps the condition has held."""
        self._best: float | None = None
        self._best_at: Key = (0, 0)
        self._waited = 0
        """The reports since the last improvement."""

    @property
    def limit(self) -> float:
        found = self.rule.below if self.rule.above is None else self.rule.above
        return found or 0.0

    def holds(self, value: float) -> bool:
        """Whether a value is what the rule is about."""
        if self.rule.is_nan:
            return math.isnan(value)
        if self.rule.patience is not None:
            return False
        return value > self.limit if self.rule.above is not None else value < self.limit

    def is_met_by(self, step: DrawnStep) -> bool:
        """Takes a step; returns whether the condition begins to be met there."""
        value = step.values.mean
        last, is_late = self._last, self._last is not None and step.key <= self._last
        if is_late and not (self.rule.is_nan and math.isnan(value)):
            return False  # the rank's value alone: the mean at that step was taken before
        self._last = step.key if not is_late else last
        waits = self.rule.patience is not None
        is_met = self._has_waited(value, step.key) if waits else self._has_held(value, step.key, last)
        begins, self._is_armed = is_met and self._is_armed, not is_met
        return begins

    def _has_held(self, value: float, key: Key, last: Key | None) -> bool:
        if not self.holds(value):
            self._steps = 0
            return False
        is_next = last is not None and key[0] == last[0] and key > last
        self._steps += key[1] - last[1] if self._steps and is_next and last is not None else 1
        return self._steps >= self.rule.for_steps

    def _has_waited(self, value: float, key: Key) -> bool:
        rule = self.rule
        self._waited += 1
        if not math.isnan(value) and (self._best is None or self._improves(value, self._best)):
            self._best, self._best_at = value, key
            if rule.baseline is None or self._improves(value, rule.baseline):
                self._waited = 0
            return bool(self._waited) and not self._is_armed  # it is better than before, so nothing begins here
        return self._waited >= (rule.patience or 0)

    def _improves(self, value: float, reference: float) -> bool:
        if self.rule.mode == "max":
            return value - self.rule.min_delta > reference
        return value + self.rule.min_delta < reference

    def waited(self) -> str:
        """The end of the sentence about a wait."""
        best = "" if self._best is None else f"; the best was {shown(self._best)} at {self._best_at[1]}"
        return f", not improved for {counted(self._waited, 'report')}{best}"
