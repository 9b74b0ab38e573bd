"""Rules of a job, for users: `when` makes one, a job adds and removes them, and texts say what they are."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from notebook_accel.config.call_arguments import name_of
from notebook_accel.errors import ConfigurationError, PayloadError, did_you_mean
from notebook_accel.events import Rule, RuleChanged
from notebook_accel.events.control import CHECKPOINT, END_AFTER_EPOCH, PAUSE
from notebook_accel.events.rules import ACTIONS, CALL, NOTIFY, STOP
from notebook_accel.launch.job import requests
from notebook_accel.launch.job.job_state import JobState
from notebook_accel.launch.job.metric_charts import better
from notebook_accel.launch.job.requests import JobHandle
from notebook_accel.launch.job.text import value as shown
from notebook_accel.launch.job.waiting import Condition
from notebook_accel.launch.wire import payload
from notebook_accel.launch.wire.payload import WithArguments
from notebook_accel.rank_spans import counted

_WORDS = {
    NOTIFY: "say so",
    PAUSE: "pause",
    CHECKPOINT: "save a checkpoint",
    END_AFTER_EPOCH: "end after the epoch",
    STOP: "stop",
}
_CHOICES = [action.replace(" ", "_") for action in ACTIONS if action != CALL]
_SECONDS = 5.0
"""How long the process that runs the job may take to add or remove a rule."""
_MOST_RULES = 8
"""The most rules that the lines about a job name."""
_STOP = re.compile(r"\s*(?:(?P<nan>.+?)\s+is\s+nan|(?P<limit>.+?))(?:\s+for\s+(?P<steps>\d+)\s+steps?)?\s*", re.I)
"""A condition as text."""
_tokens = itertools.count(-1, -1)


@dataclass(frozen=True)
class RuleMet:
    """What a rule's function is called with."""

    job: RuledJob
    metric: str
    value: float
    """The mean over the ranks, as the chart shows it; NaN if a rank's value is."""
    step: int
    """The step that was reported with it, or the number of the report if there was none."""
    ranks: Sequence[int]
    """The ranks whose values are NaN; for limits, those whose values are beyond them; otherwise all that reported."""
    text: str
    """All of this as a sentence, without a full stop."""


@dataclass(frozen=True)
class NewRule:
    """A rule that no job has yet; `when` makes it."""

    rule: Rule
    function: Callable[[RuleMet], object] | None = None

    def __repr__(self) -> str:
        return f"<rule: {describe(self.rule)}>"


def when(
    metric: str,
    *,
    is_nan: bool = False,
    above: float | None = None,
    below: float | None = None,
    for_steps: int = 1,
    patience: int | None = None,
    min_delta: float = 0.0,
    mode: str = "auto",
    baseline: float | None = None,
    do: str | Callable[[RuleMet], object] = NOTIFY,
) -> NewRule:
    """A rule for `notebook_launcher(..., rules=[...])` and `job.add_rule`: what to do when a metric meets a condition.

    The metric is the mean over the ranks at each step, as its chart shows it. A rule needs exactly one condition:
    `is_nan`, `above` or `below`, or `patience`. It takes effect when the condition is first met, and again only after
    the condition has stopped being met. After a restart of the ranks, it begins again.

    Args:
        metric: The name that the metric is reported by.
        is_nan: Whether a rank's value is NaN.
        above: The metric is greater than this.
        below: The metric is less than this.
        for_steps: For how many steps in a row `is_nan`, `above`, or `below` has to hold. Where steps aren't reported,
            reports are counted.
        patience: How many reports in a row bring no improvement, as in the `EarlyStopping` of Keras.
        min_delta: For `patience`: the least change that counts as an improvement.
        mode: For `patience`: `min` if lower values are better, `max` if higher ones are, or `auto`, which goes by the
            metric's name.
        baseline: For `patience`: only values better than this end the wait.
        do: What happens: `notify` says so below the cell and on the panel; `pause`, `checkpoint`, and
            `end_after_epoch` do what these methods of a `Job` do, after the same step on all ranks, and need an
            `Accelerator`; `stop` ends the job with a `JobCancelledError`. Or a function of yours, which the process
            that runs the job calls on a thread of its own with an object that has `metric`, `value`, `step`, `ranks`,
            `text`, and `job`.

    Raises:
        ConfigurationError: The arguments don't make a rule.
    """
    if not isinstance(metric, str) or not metric:
        raise ConfigurationError(f"when() takes the name of a metric, such as 'loss', not {metric!r:.80}")
    call = f"when({metric!r}, ...)"
    conditions = {
        "is_nan": _flag(call, is_nan),
        "above/below": above is not None or below is not None,
        "patience": patience is not None,
    }
    given = [name for name, is_given in conditions.items() if is_given]
    if not given:
        raise ConfigurationError(f"{call} has no condition: give is_nan=True, above=, below=, or patience=")
    if len(given) > 1 or (above is not None and below is not None):
        raise ConfigurationError(
            f"{call} has several conditions ({', '.join(given)}): write a rule for each, since either may be met first"
        )
    if patience is None:
        unused = {"min_delta": min_delta != 0, "mode": mode != "auto", "baseline": baseline is not None}
        if names := ", ".join(name for name, is_given in unused.items() if is_given):
            raise ConfigurationError(f"{call}: {names} has an effect only with patience=")
    elif for_steps != 1:
        raise ConfigurationError(f"{call}: patience= counts reports without improvement by itself; leave out for_steps")
    action, function = _action(call, do)
    rule = Rule(
        metric,
        action,
        is_nan=is_nan,
        above=_number("above", above),
        below=_number("below", below),
        for_steps=_count("for_steps", for_steps, 1),
        patience=None if patience is None else _count("patience", patience, 0),
        min_delta=abs(_number("min_delta", min_delta) or 0.0),
        mode="" if patience is None else _mode(metric, mode),
        baseline=_number("baseline", baseline),
        function="" if function is None else name_of(function),
    )
    return NewRule(rule, function)


def _flag(call: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigurationError(f"{call}: is_nan must be True or False, not {value!r:.80}")
    return value


def _number(name: str, value: float | None) -> float | None:
    return None if value is None else requests.checked_number(name, value, above=-1e300, most=1e300, what="a number")


def _count(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < least:
        raise ConfigurationError(f"{name} must be a whole number of at least {least}, not {value!r:.80}")
    return int(value.__index__())


def _mode(metric: str, mode: Any) -> str:
    if mode not in ("auto", "min", "max"):
        raise ConfigurationError(f"mode must be 'min', 'max', or 'auto', not {mode!r:.80}")
    if mode == "auto" and not better(metric):
        raise ConfigurationError(
            f"the name {metric!r} doesn't tell whether lower or higher values are better: add mode='min' or mode='max'"
        )
    return str(mode) if mode != "auto" else "max" if better(metric) > 0 else "min"


def _action(call: str, do: Any) -> tuple[str, Callable[[RuleMet], object] | None]:
    if callable(do):
        return CALL, do
    action = do.replace("_", " ").replace("-", " ") if isinstance(do, str) else do
    if action not in _WORDS:
        hint = did_you_mean(do, _CHOICES) if isinstance(do, str) else ""
        raise ConfigurationError(
            f"{call}: do={do!r:.80} is unknown{hint}; choose one of {', '.join(map(repr, _CHOICES))}, or a function"
        )
    return action, None


def check(rules: Any) -> Sequence[NewRule]:
    """The rules of a launch.

    Raises:
        ConfigurationError: They are something else.
    """
    if rules is None:
        return ()
    if isinstance(rules, (str, NewRule)) or not isinstance(rules, Sequence):
        raise ConfigurationError(f"rules must be a list, as in rules=[when('loss', is_nan=True)], not {rules!r:.80}")
    if wrong := [rule for rule in rules if not isinstance(rule, NewRule)]:
        raise ConfigurationError(
            f"rules has {wrong[0]!r:.80}, which is not a rule: write when('loss', is_nan=True, do='pause')"
        )
    return tuple(rules)


def pack(rules: Sequence[NewRule]) -> list[bytes]:
    """Pickles rules for another process, with the functions that they call.

    Raises:
        PayloadError: A function can't be pickled.
    """
    try:
        return payload.pack_arguments(rules, {}) if rules else []
    except Exception as error:
        names = ", ".join(rule.rule.function for rule in rules if rule.function is not None)
        raise PayloadError(
            f"a rule calls {names}(), which can't be pickled for the process that runs the job: {error}"
        ) from error


def unpack(packed: Sequence[bytes]) -> Sequence[NewRule]:
    """The rules of `pack`."""
    if not packed:
        return ()
    found: Sequence[NewRule] = WithArguments(lambda *rules: rules, packed)()
    return found


class RuledJob(JobHandle):
    """A job that rules can be added to while it runs."""

    @property
    def rules(self) -> dict[int, str]:
        """What each rule of the job says, by its number."""
        return {number: describe(each.rule) for number, each in self.rule_changes.items() if not each.removed}

    def add_rule(self, rule: NewRule) -> int:
        """Adds a rule: `job.add_rule(when("loss", is_nan=True, do="pause"))`. It looks at later reports only.

        Returns:
            Its number.

        Raises:
            ConfigurationError: It is not a rule; or it calls a function, but another process runs the job.
            JobEndedError: The job has ended.
            TimeoutError: The process that runs the job has not answered.
        """
        (rule,) = check([rule])
        number = 0
        if rule.function is not None:
            if self.runner.rule_functions is None:
                raise ConfigurationError(
                    f"another process runs {self.title}, and can't call {rule.rule.function} of this notebook. Choose "
                    "another action, or pass the rule to the launch: notebook_launcher(..., rules=[...])"
                )
            number = next(_tokens)
            self.runner.rule_functions[number] = rule.function
        return _request(self, RuleChanged(number, rule.rule), "a rule can't be added to it").number

    def remove_rule(self, number: int) -> None:
        """Removes a rule.

        Args:
            number: As `add_rule` has returned it, and as `rules` has it.

        Raises:
            ConfigurationError: There is no such rule.
            JobEndedError: The job has ended.
            TimeoutError: The process that runs the job has not answered.
        """
        if number not in self.rules:
            raise ConfigurationError(f"{self.title} has no rule {number!r}; it has {list(self.rules) or 'none'}")
        change = self.rule_changes[number]
        _request(self, RuleChanged(number, change.rule, removed=True), "its rules can't be removed")

    def begin_with(self, rules: Sequence[NewRule]) -> None:
        """Takes the rules of the launch."""
        assert self.runner.rule_functions is not None
        for number, rule in enumerate(rules, 1):
            self.apply(None, RuleChanged(number, rule.rule))
            if rule.function is not None:
                self.runner.rule_functions[number] = rule.function


def _request(job: JobHandle, event: RuleChanged, cause: str) -> RuleChanged:
    found = requests.replies(job, event, _SECONDS, None, cause)
    for reply in found.by_rank.values():
        if isinstance(reply, RuleChanged):
            return reply
    if job.status.ended:
        raise requests.ended(job, cause)
    raise TimeoutError(f"the process that runs {job.title} has not answered")


def describe(rule: Rule) -> str:
    """`if loss is NaN: pause`."""
    if rule.patience is not None:
        condition = f"has not improved for {counted(rule.patience, 'report')}"
    else:
        condition = _limit(rule)
        if rule.for_steps > 1:
            condition += f" for {rule.for_steps} steps"
    action = f"call {rule.function}()" if rule.action == CALL else _WORDS[rule.action]
    return f"if {rule.metric} {condition}: {action}"


def _limit(rule: Rule) -> str:
    if rule.is_nan:
        return "is NaN"
    return f"is above {shown(rule.above)}" if rule.above is not None else f"is below {shown(rule.below or 0.0)}"


def describe_rules(job: JobState) -> list[str]:
    """A line for each rule, with how it was met; once the job has ended, for those that were."""
    found = []
    for number, each in job.rule_changes.items():
        if each.removed or (job.status.ended and not each.met):
            continue
        times = f"met {each.met} times, last: " if each.met > 1 else "met: "
        state = f" ({times}{each.last})" if each.met else unreported(job, each.rule.metric)
        found.append(f"rule {number}: {describe(each.rule)}{state}")
    left_out = len(found) - _MOST_RULES
    return [*found[:_MOST_RULES], *([counted(left_out, "more rule")] if left_out > 0 else [])]


def unreported(job: JobState, metric: str) -> str:
    """That a job reports other metrics than this one, in parentheses; empty as long as it may not have begun to."""
    known = job.charts.names
    return "" if not known or metric in known else f" ({metric} is not reported so far{did_you_mean(metric, known)})"


def stop_conditions(job: JobState) -> str:
    """The conditions of the rules that stop the job, as `stop_when` takes them; that of `patience` has no such form."""
    return " or ".join(_stop_rules(job))


def stop_when(job: RuledJob, text: str) -> None:
    """Makes these the conditions that stop the job, such as `loss is NaN for 2 steps or loss > 10`; empty: none.

    Raises:
        ConfigurationError: The text has something else.
        JobEndedError: The job has ended.
        TimeoutError: The process that runs the job has not answered.
    """
    given = map(_stop_rule, re.split(r"\s+or\s+", text) if text.strip() else ())
    wanted = {_condition(rule.rule): rule for rule in given}
    present = _stop_rules(job)
    for condition in present.keys() - wanted:
        job.remove_rule(present[condition])
    for condition, rule in wanted.items():
        if condition not in present:
            job.add_rule(rule)


def _stop_rules(job: JobState) -> dict[str, int]:
    """The numbers of the rules that stop the job, by their conditions."""
    return {
        _condition(each.rule): number
        for number, each in job.rule_changes.items()
        if each.rule.action == STOP and each.rule.patience is None and not each.removed
    }


def _stop_rule(text: str) -> NewRule:
    found = _STOP.fullmatch(text)
    try:
        if found is None:
            raise ConfigurationError("it is empty")
        steps = int(found["steps"] or 1)
        if found["nan"]:
            return when(found["nan"], is_nan=True, for_steps=steps, do=STOP)
        limit = Condition.parse(found["limit"])
        if limit.sign not in ("<", ">"):
            raise ConfigurationError("the sign is neither < nor >")
        above, below = (limit.limit, None) if limit.sign == ">" else (None, limit.limit)
        return when(limit.metric, above=above, below=below, for_steps=steps, do=STOP)
    except ConfigurationError:
        raise ConfigurationError(
            f"{text.strip()!r:.80} is not a condition that can stop the job: write one such as loss > 10, acc < 0.1 "
            "for 50 steps, or loss is NaN, and join several by or"
        ) from None


def _condition(rule: Rule) -> str:
    """A condition as text, with all digits."""
    sign, limit = (">", rule.above) if rule.above is not None else ("<", rule.below)
    what = "is NaN" if rule.is_nan else f"{sign} {limit!r}".removesuffix(".0")
    return f"{rule.metric} {what}" + (f" for {rule.for_steps} steps" if rule.for_steps > 1 else "")


def met(job: JobState, action: str) -> str:
    """What has met the rules that do this; empty if none was met."""
    return "; ".join(each.last for each in job.rule_changes.values() if each.met and each.rule.action == action)
