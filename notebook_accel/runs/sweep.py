"""`sweep`: runs a function with many combinations of parameters, several at once."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from notebook_accel import hardware
from notebook_accel.config import LaunchConfig, kinds
from notebook_accel.config.call_arguments import check_call, check_fit, check_flag, launch_advice, name_of
from notebook_accel.config.resolve import resolve
from notebook_accel.errors import ConfigurationError, HardwareError, UnknownArgumentError, did_you_mean
from notebook_accel.launch.driver import launcher
from notebook_accel.launch.driver.launcher import Call
from notebook_accel.launch.job import rules
from notebook_accel.launch.job.text import title
from notebook_accel.launch.plan import devices
from notebook_accel.launch.show import console
from notebook_accel.launch.show.console import Unseen
from notebook_accel.launch.system import own_process
from notebook_accel.owner import Owner
from notebook_accel.rank_spans import counted
from notebook_accel.runs import record, search
from notebook_accel.runs.board import Board, Facts
from notebook_accel.runs.runs import Runs, sign_of
from notebook_accel.runs.schedule import Options, Order, Schedule
from notebook_accel.runs.search import Halving, Parameters
from notebook_accel.runs.trial import Trial

_THREADS = "OMP_NUM_THREADS"
_OURS = ("function", "args", "kwargs", "block", "detach", "in_process", "name", "resume")
"""The parameters of `notebook_launcher` that a sweep sets itself, or has its own of."""


def sweep(
    function: Callable[..., Any],
    parameters: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    n: int | None = None,
    seed: int = 0,
    study: Any = None,
    metric: str | None = None,
    goal: str | None = None,
    halving: int | None = None,
    factor: int = 3,
    gpus_each: int | None = None,
    at_once: int | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    block: bool | None = None,
    detach: bool = False,
    resume: bool | str = False,
    **options: Any,
) -> Runs:
    """Runs a function once for each combination of parameters, as many at once as there are devices for.

    Each of these trials is a job of its own, as `notebook_launcher` starts it, and calls `function(*args, **kwargs)`
    with its parameters as further keyword arguments. Below the cell is a board with a row for each trial, which stays
    in the notebook as a table. A trial that fails is a row, and the others continue.

    Args:
        function: What to run. For its values to be compared, it reports metrics, with `report`, `Accelerator.log`, or
            in another way that a launch shows.
        parameters: `{"lr": [1e-4, 1e-3], "wd": [0, 0.1]}` for all combinations, or a list with a dict for each trial.
        n: The number of trials, for a random search. Where all values are lists, these are different combinations. A
            value may be a function of a `random.Random`: `{"lr": lambda random: 10 ** random.uniform(-5, -1)}`.
        seed: The seed of the random search; the same seed makes the same choices.
        study: A study of Optuna, which suggests the parameters of `n` trials, and gets the last value of `metric` of
            each. Its pruner stops trials. The values are lists, or objects from `optuna.distributions`.
        metric: What the trials are compared by: the name of a metric that they report. Defaults to `loss`, or what ends
            with it, otherwise to the first one. Needed for `halving` and `study`.
        goal: `min` or `max`: which values of the metric are good. By default, its name decides: low values of
            a loss are good, and high values of an accuracy.
        halving: Stops bad trials early, by successive halving: a step of the metric. At this step, and at `factor`,
            `factor` squared, … times this step, a trial continues only if its value is among the best `1 / factor` of
            those that trials have had at the step so far.
        factor: See `halving`.
        gpus_each: The number of GPUs of each trial, which has as many ranks. 1 by default, if there are GPUs.
        at_once: How many trials run at once, at most. By default, as many as there are GPUs for; on the CPU, as many as
            there are cores for, with `num_processes` ranks each, 1 by default.
        args: The positional arguments of the function, the same for all trials.
        kwargs: Keyword arguments, the same for all trials.
        block: With `False`, returns at once, and the notebook stays free.
        detach: With `True`, also returns at once, and trials that run continue even if the kernel ends; `resume` then
            finds them.
        resume: With `True`, continues the last sweep of this notebook with the same function and parameters that is not
            done, if there is one: trials that are done or were stopped early keep their rows, and those that failed or
            did not end run again. Or the `id` of a sweep.
        options: Further arguments of `notebook_launcher`. The trials share `gpus` among them.
            `checkpoint` is a folder in which each trial has a folder of its own.

    Returns:
        The trials, with `best`, `results`, `dataframe()`, and `parallel_coordinates()`.

    Raises:
        ConfigurationError: An argument cannot work.
        HardwareError: There are fewer devices than a trial needs.
        PayloadError: The function or an argument cannot be pickled.
        KeyboardInterrupt: The notebook was interrupted. The trials are stopped.
    """
    for name in options:
        check_option(name, function, sweep)
    for name, flag in (("detach", detach), ("block", block is None or block)):
        check_flag(name, flag)
    if not isinstance(resume, (bool, str)) or resume == "":
        raise ConfigurationError(f"resume={resume!r:.80} is neither True nor the ID of a sweep")
    if detach:
        launcher.check_reachable(resolve(options))
    checked = rules.check(options.pop("rules", None))
    call = check_call(function, args, kwargs)
    searched = search.make(parameters, n, seed, study)
    known = searched.known
    for each in known or [dict.fromkeys(searched.names)]:
        check_parameters(call, each)
    sign = 0 if goal is None else sign_of(goal)
    facts = Facts(title(name_of(function)), [], metric, sign)
    if (halving is not None or study is not None) and metric is None:
        raise ConfigurationError("to compare trials while they run, say by what: metric='loss'")
    order = Order(call, *_places(options, gpus_each, at_once), detach, checked)
    stopper = _halving(halving, factor, metric, facts)
    if study is not None and metric is not None:
        _check_direction(study, metric, facts)
    _try_first(order, known)
    past, name, origin = None, name_of(function), console.current.origin()
    if resume:
        past = record.find(resume, name, origin, searched.total, known)
    facts.trials = [Trial(number, dict(known[number]) if known else {}) for number in range(searched.total)]
    if past is not None:
        for trial in facts.trials:
            past.restore(trial)
    recorded = record.create(name, origin, searched.total) if past is None else past.record
    recorded.add(owner=str(Owner.this()))
    board = Board(facts)
    schedule = Schedule(order, searched, facts.trials, recorded, board, metric=metric, halving=stopper, past=past)
    runs = Runs(recorded.id, facts, schedule, board)
    if detach or block is False:
        own_process.start_thread(schedule.run, f"sweep {name}")
    else:
        schedule.run()
    return runs


def check_option(name: str, function: Any, caller: Callable[..., Any]) -> None:
    """Refuses an argument that launches don't have, or that the caller, `sweep` or the like, sets itself.

    Raises:
        ConfigurationError: The caller sets it.
        UnknownArgumentError: There is no such argument.
    """
    known = inspect.signature(launcher.notebook_launcher).parameters
    if name in _OURS:
        raise ConfigurationError(f"{caller.__name__}() sets {name} of each launch itself: leave it out")
    if name not in known:
        own = inspect.signature(caller).parameters
        advice = launch_advice(name, {"function": function})
        if advice.startswith("it is a parameter of the function"):
            advice = f"it is a parameter of the function: {{{name!r}: [...]}} tries values, kwargs= has one for all"
        hint = f": {advice}" if advice else did_you_mean(name, [*own, *known])
        raise UnknownArgumentError(f"{caller.__name__}() has no argument {name!r}{hint}")


def check_parameters(call: Call, parameters: Mapping[str, Any]) -> None:
    """Refuses parameters that the function doesn't take.

    Raises:
        ConfigurationError: It doesn't take them.
    """
    function, args, kwargs = call
    twice = ", ".join(name for name in parameters if name in kwargs)
    if twice:
        raise ConfigurationError(f"kwargs has {twice}, which the trials set: leave it out there")
    check_fit(function, args, {**kwargs, **parameters}, f"{', '.join(parameters)} as keyword arguments")


def _halving(first: Any, factor: Any, metric: str | None, facts: Facts) -> Halving | None:
    if first is None or metric is None:
        return None
    first, factor = kinds.integer(1).check("halving", first), kinds.integer(2).check("factor", factor)
    return Halving(first, factor, facts.known_sign(metric))


def _check_direction(study: Any, metric: str, facts: Facts) -> None:
    """Refuses a study that would look for the worst values."""
    directions = [each.name.lower() for each in study.directions]
    if len(directions) != 1:
        raise ConfigurationError(f"this study has {len(directions)} objectives, but a sweep compares by one metric")
    wanted = "maximize" if facts.known_sign(metric) > 0 else "minimize"
    if directions[0] != wanted:
        raise ConfigurationError(
            f"the study is to {directions[0]}, but good values of {metric!r} are those that {wanted} it: create the "
            f"study with direction={wanted!r}, or pass goal={'min' if directions[0] == 'minimize' else 'max'!r}"
        )


def _places(options: Options, gpus_each: Any, at_once: Any) -> tuple[Options, Sequence[Options]]:
    """The arguments that all launches share, and for each trial that runs at once, those that name its devices."""
    gpus_each, at_once = (
        None if value is None else kinds.integer(1).check(name, value)
        for name, value in (("gpus_each", gpus_each), ("at_once", at_once))
    )
    config = resolve(options)
    shared = {name: value for name, value in options.items() if name not in ("gpus", "num_processes")}
    found = hardware.detect({**os.environ, **config.env})
    kind = devices.kind(config, found)
    if config.cluster or config.num_nodes > 1 or kind not in ("cuda", "cpu"):
        where = "several machines" if kind in ("cuda", "cpu") else kind
        if (gpus_each, at_once or 1) != (None, 1):
            raise ConfigurationError(f"on {where}, trials run one after the other: leave gpus_each and at_once out")
        return {**options}, [{}]
    if kind == "cuda":
        return shared, _places_on_gpus(config, found, gpus_each, at_once)
    if gpus_each is not None:
        hidden = f": {found.hidden_gpus}" if found.hidden_gpus else ""
        raise HardwareError(f"gpus_each={gpus_each}, but torch can use no GPU here{hidden}: leave it out")
    ranks = config.num_processes or 1
    count = at_once or max(1, found.cores // ranks)
    env = {**(options.get("env") or {})}
    if _THREADS not in config.env and _THREADS not in os.environ:
        env[_THREADS] = str(max(1, found.cores // (count * ranks)))
    return {**shared, "env": env}, [{"num_processes": ranks}] * count


def _places_on_gpus(
    config: LaunchConfig, found: hardware.Hardware, gpus_each: int | None, at_once: int | None
) -> Sequence[Options]:
    each = gpus_each or config.num_processes or 1
    free = [index for index in range(len(found.gpus)) if index not in found.exclusive_holders]
    pool = list(config.gpus or free or range(len(found.gpus)))
    most = len(pool) // each
    if not most:
        raise HardwareError(f"each trial needs {counted(each, 'GPU')}, but there are {len(pool)} for all of them")
    if at_once is not None and at_once > most:
        raise ConfigurationError(
            f"at_once={at_once} trials with {counted(each, 'GPU')} each need {at_once * each}, but there "
            f"are {len(pool)}: leave at_once out, or list GPUs twice for trials to share them, as in gpus=[0, 0]"
        )
    return [
        {"gpus": pool[at * each : (at + 1) * each], "num_processes": each, "device": "cuda"}
        for at in range(at_once or most)
    ]


def _try_first(order: Order, known: Sequence[Parameters] | None) -> None:
    """Plans each launch, and pickles the first call, so that what can't work at all raises here.

    Raises:
        NotebookAccelError: As `notebook_launcher`.
    """
    with console.using(Unseen(console.current)):
        for place in order.places:
            prepared = launcher.prepare(resolve(order.arguments_of(place, 0, "trial 0")))
        if known:
            _, packed = prepared.packing(*order.call_of(known[0]))
            packed.close()
