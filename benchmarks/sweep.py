"""What a sweep takes beyond its trials: 100 trials that do nothing, two at once, beside Ray Tune and a plain loop.

Ray Tune is measured in the environment of `scripts/test-cluster`, once its own packages are there too:
`.venv-cluster/bin/python -m pip install "ray[tune]"`, and then `.venv-cluster/bin/python benchmarks/run.py sweep`.
Elsewhere, only the loops are: of `notebook_launcher`, and of Accelerate's.
"""

from __future__ import annotations

import importlib.util
import tempfile
from functools import partial

from common import Kernel, goal, in_turn, port_argument, table

_TRIALS = 100
_AT_ONCE = 2
_BEYOND = 60
"""Milliseconds of a trial beyond its own time, which is none."""
_RATIO = 0.2
"""Of Ray Tune's time."""
_START = """
import notebook_accel, time
from notebook_accel import sweep, notebook_launcher

def nothing(x=0):
    return x
"""
_SWEEP = "runs = sweep(nothing, {{'x': list(range({trials}))}}, at_once={at_once})\n"
_CHECK = "assert runs.results == [[x] for x in range({trials})]"
_LOOP = "for x in range({trials}): notebook_launcher(nothing, (x,), num_processes=1)"
_ACCELERATE = """
import accelerate, os, time

def nothing(x=0):
    return x
"""
_ACCELERATE_LOOP = "for x in range({trials}): accelerate.notebook_launcher(nothing, (x,), num_processes=2{port})"
_RAY = """
import os
os.environ.update(RAY_AIR_NEW_OUTPUT="0", TUNE_DISABLE_AUTO_CALLBACK_LOGGERS="1", RAY_TRAIN_V2_ENABLED="0")
import ray
from ray import tune

ray.init(num_cpus={at_once}, include_dashboard=False, log_to_driver=False, logging_level="ERROR")

def nothing(config):
    return {{"x": config["x"]}}
"""
_TUNE = """
found = tune.Tuner(
    tune.with_resources(nothing, {{"cpu": 1}}),
    param_space={{"x": tune.grid_search(list(range({trials})))}},
    run_config=tune.RunConfig(storage_path={folder!r}, verbose=0),
).fit()
assert not found.errors and len(found) == {trials}
"""


def measure(*, quick: bool) -> None:
    trials = 20 if quick else _TRIALS
    has_ray = all(map(importlib.util.find_spec, ("ray", "tensorboardX", "pyarrow")))
    with tempfile.TemporaryDirectory() as folder, Kernel() as here, Kernel() as peer, Kernel(1200) as ray:
        here.run(_START)
        here.run("notebook_launcher(nothing, num_processes=1)")
        peer.run(_ACCELERATE)
        contenders = {
            "sweep": partial(here.run, (_SWEEP + _CHECK).format(trials=trials, at_once=_AT_ONCE)),
            "a loop of launches": partial(here.run, _LOOP.format(trials=trials)),
            "a loop of Accelerate's, on 2 ranks": lambda: peer.run(
                _ACCELERATE_LOOP.format(trials=trials, port=port_argument("Accelerate"))
            ),
        }
        if has_ray:
            ray.run(_RAY.format(at_once=_AT_ONCE))
            contenders["Ray Tune"] = partial(ray.run, _TUNE.format(trials=trials, folder=folder))
        found = in_turn(contenders, 1 if quick else 3)
    rows = [[name, each.text(1e-3 * trials, 1)] for name, each in found.items()]
    table(f"{trials} trials that do nothing, two at once, ms a trial", ["", "time"], rows)
    print()
    goal("a trial of a sweep, beyond its own time", found["sweep"].median / trials * 1e3, _BEYOND, " ms")
    if has_ray:
        goal("a trial of a sweep, of Ray Tune's time", found["sweep"].over(found["Ray Tune"]).median, _RATIO)
