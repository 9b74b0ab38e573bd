"""What it costs a rank that its stack is sampled for a flame graph: the CPU time of a step, with samples and without.

In a real rank of a real kernel, in turns; the samples are taken by the rank's own channel thread.
"""

from __future__ import annotations

import argparse
import json

from common import Kernel, Spread, goal, table, warn_if_busy

_RATES = (20, 100)
_CODE = """
import json, threading
from notebook_accel import notebook_launcher

def work(folder):
    import os, time, torch
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    x, steps = torch.randn(64, 256), []
    while not os.path.exists(folder + "/end"):
        began = time.monotonic(), time.process_time()
        for _ in range(50):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        steps.append((began[0], time.monotonic(), (time.process_time() - began[1]) / 50))
    return steps

def measure(rounds, rates, seconds):
    import tempfile, time
    with tempfile.TemporaryDirectory() as folder:
        job = notebook_launcher(work, (folder,), num_processes=1, device="cpu", block=False)
        while job.ranks[0].phase.value != "running": time.sleep(0.01)
        time.sleep(2)  # until its first steps are over
        turns = []
        for _ in range(rounds):
            for rate in (0, *rates):
                began = time.monotonic()
                job.flamegraph(seconds, rate=rate) if rate else time.sleep(seconds)
                turns.append((rate, began + 0.1 * seconds, began + 0.9 * seconds))
        open(folder + "/end", "w").close()
        steps = job.result()[0]
    found = {rate: [] for rate in (0, *rates)}
    for rate, first, last in turns:
        inside = [cpu for began, ended, cpu in steps if first <= began and ended <= last]
        found[rate].append(sum(inside) / len(inside))
    print(json.dumps(found))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds, seconds = (4, 1.0) if parser.parse_args().quick else (12, 2.0)
    warn_if_busy()
    with Kernel(timeout=600) as kernel:
        kernel.run(_CODE)
        told = kernel.run(f"measure({rounds}, {_RATES}, {seconds})")
    found = {int(rate): Spread(values) for rate, values in json.loads(told.splitlines()[-1]).items()}
    ratios = {rate: found[rate].over(found[0]) for rate in _RATES}
    rows = [["none", found[0].text(1e-6), "-"]]
    rows += [[str(rate), found[rate].text(1e-6), ratios[rate].ratio()] for rate in _RATES]
    table("CPU time of a step, µs", ["samples per second", "step", "ratio"], rows)
    print()
    goal("CPU time of a step, 20 samples per second over none", ratios[20].median, 1.01)
    goal("CPU time of a step, 100 samples per second over none", ratios[100].median, 1.03)


if __name__ == "__main__":
    main()
