"""Which parameters the trials of a sweep have: a grid, a list, random choices, or what an Optuna study suggests."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from notebook_accel.config import kinds
from notebook_accel.errors import ConfigurationError

Parameters = dict[str, Any]
Space = Mapping[str, Any] | Sequence[Mapping[str, Any]]
_MOST = 10_000
"""The most trials of a sweep: more were probably not meant."""
_NUMBER = kinds.integer(1, _MOST)


class Search(Protocol):
    """Gives the parameters of one trial after the other, and receives what they have led to."""

    @property
    def total(self) -> int:
        """How many trials there are."""

    @property
    def names(self) -> Sequence[str]:
        """The names of the parameters."""

    @property
    def known(self) -> Sequence[Parameters] | None:
        """The parameters of all trials, if they are known from the start."""

    def ask(self, number: int) -> Parameters:
        """The parameters of a trial, which begins now."""

    def report(self, number: int, step: int, value: float) -> str:
        """Takes a value of a trial that runs; returns why the trial should stop, or an empty text."""

    def tell(self, number: int, value: float | None, *, failed: bool, stopped: bool) -> None:
        """Takes the last value of a trial that has ended, `None` if it is not finite; and if the trial was stopped."""


class Fixed:
    """Parameters that are known from the start."""

    def __init__(self, trials: Sequence[Parameters]) -> None:
        self.known = trials
        self.total = len(trials)
        self.names = list(dict.fromkeys(name for each in trials for name in each))

    def ask(self, number: int) -> Parameters:
        return self.known[number]

    def report(self, number: int, step: int, value: float) -> str:
        return ""

    def tell(self, number: int, value: float | None, *, failed: bool, stopped: bool) -> None:
        pass


class OptunaSearch:
    """Parameters that a study of Optuna suggests, whose pruner also says which trials should stop."""

    known = None

    def __init__(self, study: Any, space: Mapping[str, Any], total: int) -> None:
        import optuna

        self._study = study
        self._pruned = optuna.trial.TrialState.PRUNED
        self._failed = optuna.trial.TrialState.FAIL
        self._space = {name: _distribution(optuna, name, value) for name, value in space.items()}
        self._trials: dict[int, Any] = {}
        self.total = total
        self.names = list(space)

    def ask(self, number: int) -> Parameters:
        trial = self._trials[number] = self._study.ask(self._space)
        return dict(trial.params)

    def report(self, number: int, step: int, value: float) -> str:
        trial = self._trials.get(number)
        if trial is None:  # of an earlier kernel
            return ""
        trial.report(value, step)
        return f"{type(self._study.pruner).__name__} stopped it at step {step}" if trial.should_prune() else ""

    def tell(self, number: int, value: float | None, *, failed: bool, stopped: bool) -> None:
        trial = self._trials.pop(number, None)
        if trial is None:  # of an earlier kernel
            return
        if failed or value is None:
            self._study.tell(trial, state=self._failed)
        elif stopped:
            self._study.tell(trial, state=self._pruned)
        else:
            self._study.tell(trial, value)


def _distribution(optuna: Any, name: str, value: Any) -> Any:
    if isinstance(value, optuna.distributions.BaseDistribution):
        return value
    if _is_list(value):
        return optuna.distributions.CategoricalDistribution(tuple(value))
    raise ConfigurationError(
        f"{name}={value!r:.80} is nothing that a study can suggest: give a list of choices, or one of "
        "optuna.distributions, such as FloatDistribution(1e-5, 1e-1, log=True)"
    )


def make(space: Any, n: int | None, seed: int, study: Any) -> Search:
    """The search that the arguments of `sweep` describe.

    Raises:
        ConfigurationError: They describe none.
    """
    if study is not None:
        return _from_study(space, n, study)
    if isinstance(space, Mapping):
        trials = _grid(space) if n is None else _drawn(space, n, seed)
    elif n is not None:
        raise ConfigurationError("n= draws from a dict of lists, but the parameters are a list of trials: leave n out")
    else:
        trials = _listed(space)
    return Fixed(trials)


def _from_study(space: Any, n: int | None, study: Any) -> Search:
    if not isinstance(space, Mapping) or not space:
        raise ConfigurationError("with study=, give the parameters as a dict of lists and of optuna.distributions")
    if n is None:
        raise ConfigurationError("with study=, give the number of trials: n=20")
    if not callable(getattr(study, "ask", None)) or not callable(getattr(study, "tell", None)):
        raise ConfigurationError(f"study={study!r:.80} is not a study of Optuna: optuna.create_study() makes one")
    return OptunaSearch(study, space, _NUMBER.check("n", n))


def _listed(trials: Any) -> list[Parameters]:
    if isinstance(trials, str) or not isinstance(trials, Sequence) or not trials:
        raise ConfigurationError(
            f"{trials!r:.80} has no parameters: give a dict of lists, such as {{'lr': [1e-4, 1e-3]}}, or a list of "
            "dicts, one for each trial"
        )
    for each in trials:
        if not isinstance(each, Mapping):
            raise ConfigurationError(f"a trial's parameters are a dict by name, not {each!r:.80}")
        _check_names(each)
    return [dict(each) for each in trials]


def _grid(space: Mapping[str, Any]) -> list[Parameters]:
    _check_names(space)
    for name, values in space.items():
        if callable(values):
            raise ConfigurationError(f"{name} is drawn by a function, so say how many trials there are: n=20")
        if not _is_list(values) or not len(values):
            raise ConfigurationError(f"{name}={values!r:.80} is not a list of values; for a single one, write [value]")
    size = math.prod(len(values) for values in space.values())
    if size > _MOST:
        raise ConfigurationError(f"this grid has {size} trials; with n=100, a sweep tries 100 of them at random")
    return [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]


def _drawn(space: Mapping[str, Any], n: int, seed: int) -> list[Parameters]:
    """Random trials: different ones of the grid if it has only lists."""
    _check_names(space)
    n, seed = int(_NUMBER.check("n", n)), kinds.integer(0).check("seed", seed)
    for name, values in space.items():
        if not callable(values) and not (_is_list(values) and len(values)):
            raise ConfigurationError(
                f"{name}={values!r:.80} can't be drawn from: give a list of values, or a function of a random.Random, "
                "such as lambda random: 10 ** random.uniform(-5, -1)"
            )
    source = random.Random(seed)
    draws = iter(lambda: {name: _draw(values, source) for name, values in space.items()}, None)
    if any(map(callable, space.values())):
        return list(itertools.islice(draws, n))
    size = math.prod(len(values) for values in space.values())
    return [_at(space, index) for index in source.sample(range(size), min(n, size))]


def _draw(values: Sequence[Any] | Callable[[random.Random], Any], source: random.Random) -> Any:
    return values(source) if callable(values) else source.choice(values)


def _at(space: Mapping[str, Sequence[Any]], index: int) -> Parameters:
    """The trial of a grid that has this index."""
    found = {}
    for name, values in space.items():
        index, position = divmod(index, len(values))
        found[name] = values[position]
    return found


def _is_list(values: Any) -> bool:
    return (isinstance(values, Sequence) and not isinstance(values, (str, bytes))) or (
        hasattr(values, "__len__") and hasattr(values, "__getitem__") and hasattr(values, "shape")
    )


def _check_names(parameters: Mapping[str, Any]) -> None:
    if not parameters:
        raise ConfigurationError("a trial has no parameters: give at least one, such as {'lr': [1e-4, 1e-3]}")
    for name in parameters:
        if not isinstance(name, str):
            raise ConfigurationError(f"parameters have names, which are those of the function's: not {name!r:.80}")


class Halving:
    """Successive halving without waiting: where trials get to a rung at different times, as in ASHA (Li et al., 2020).

    At steps `first`, `first * factor`, and so on, a trial continues only if its value is among the best `1 / factor`,
    rounded up, of those that trials have had there so far. The first one always continues.
    """

    def __init__(self, first: int, factor: int, sign: int) -> None:
        self._first = first
        self._factor = factor
        self._sign = sign
        """1 if greater values are better, -1 if lower ones are."""
        self._rungs: dict[int, dict[int, float]] = {}
        """By step: by trial, how bad it was there."""

    def report(self, number: int, step: int, value: float) -> str:
        """Takes a value of a trial; returns why it should stop, or an empty text."""
        for rung in self._until(step):
            known = self._rungs.setdefault(rung, {})
            if number in known:
                continue
            badness = known[number] = -self._sign * value if math.isfinite(value) else math.inf
            kept = math.ceil(len(known) / self._factor)
            better = sum(each < badness for each in known.values())
            if better >= kept or math.isinf(badness):
                place = f"the best {kept} of {len(known)}" if kept > 1 else f"the best of {len(known)}"
                return f"{value:.4g} at step {step} was not {'among ' if kept > 1 else ''}{place}"
        return ""

    def _until(self, step: int) -> Iterator[int]:
        rung = self._first
        while rung <= step:
            yield rung
            rung *= self._factor
