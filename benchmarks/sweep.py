"""What a sweep takes beyond its trials: 100 trials that do nothing, two at once, beside Ray Tune and a plain loop.

Ray Tune is measured in the environment of `scripts/test-cluster`, once its own packages are there too:
`.venv-cluster/bin/python -m pip install "ray[tune]"`, and then `.venv-cluster/bin/python benchmarks/sweep.py`.
Elsewhere, and with `--without-ray`, only the loops are: of `notebook_launcher`, and of Accelerate's.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import tempfile
import time
from collections.abc import Callable

from common import Kernel, Spread, goal, port_argument, table, warn_if_busy

_TRIALS = 100
_AT_ONCE = 2
_BEYOND = 60
"""Milliseconds of a trial beyond its own time, which is none."""
_RATIO = 0.2
"""Of Ray Tune's time."""
_TIMEOUT = 1200.0
_START = """
import notebook_accel, time
from notebook_accel import sweep, notebook_launcher

def nothing(x=0):
    return x
"""
_SWEEP = "runs = sweep(nothing, {{'x': list(range({trials}))}}, at_once={at_once})"
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="20 trials, once")
    parser.add_argument("--without-ray", action="store_true", help="even if it is installed")
    arguments = parser.parse_args()
    warn_if_busy()
    trials, rounds = (20, 1) if arguments.quick else (_TRIALS, 3)
    has_ray = not arguments.without_ray and all(map(importlib.util.find_spec, ("ray", "tensorboardX", "pyarrow")))
    found = measure(trials, rounds, has_ray=has_ray)
    rows = [[name, spread.text(1e-3, 1)] for name, spread in found.items()]
    table(f"{trials} trials that do nothing, two at once, ms a trial", ["", "time"], rows)
    print()
    ours = found["sweep"]
    goal("a trial of a sweep, beyond its own time", ours.median * 1e3, _BEYOND, " ms")
    if "Ray Tune" in found:
        goal("a trial of a sweep, of Ray Tune's time", ours.over(found["Ray Tune"]).median, _RATIO)


def measure(trials: int, rounds: int, *, has_ray: bool) -> dict[str, Spread]:
    """Seconds of a trial, by what runs them; all of them in each round."""
    seconds: dict[str, list[float]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        Kernel(_TIMEOUT) as here,
        Kernel(_TIMEOUT) as peer,
        Kernel(_TIMEOUT) as ray,
    ):
        os.environ["NOTEBOOK_ACCEL_STATE"] = folder
        here.run(_START)
        here.run("notebook_launcher(nothing, num_processes=1)")
        peer.run(_ACCELERATE)
        if has_ray:
            ray.run(_RAY.format(at_once=_AT_ONCE))

        def timed(name: str, kernel: Kernel, code: Callable[[int], str], count: int) -> None:
            began = time.perf_counter()
            kernel.run(code(count))
            seconds.setdefault(name, []).append((time.perf_counter() - began) / count)

        for number in range(rounds + 1):
            if number == 1:
                seconds.clear()  # the first round warms up, and is shorter
            count = trials if number else min(10, trials)
            timed("sweep", here, lambda count: _SWEEP.format(trials=count, at_once=_AT_ONCE), count)
            here.run(_CHECK.format(trials=count))
            timed("a loop of launches", here, lambda count: _LOOP.format(trials=count), count)
            timed("a loop of Accelerate's, on 2 ranks", peer, _accelerate_loop, count)
            if has_ray:
                timed(
                    "Ray Tune", ray, lambda count: _TUNE.format(trials=count, folder=folder), count if rounds > 1 else 4
                )
    return {name: Spread(values) for name, values in seconds.items()}


def _accelerate_loop(count: int) -> str:
    return _ACCELERATE_LOOP.format(trials=count, port=port_argument("Accelerate"))


if __name__ == "__main__":
    main()
