"""What it costs a rank that its stack is sampled for a flame graph: CPU time of the thread that takes the samples.

In a real rank of a real kernel that trains, in turns with samples and without; and the CPU time of a training step.
"""

from __future__ import annotations

import argparse
import json

from common import Kernel, Spread, goal, table, warn_if_busy

_RATES = (20, 100)
_CODE = """
import json, os, threading
from notebook_accel import notebook_launcher

def work(folder):
    import threading, time, torch
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    x, steps = torch.randn(64, 256), []
    (thread,) = [each.native_id for each in threading.enumerate() if each.name == "notebook-accel"]
    while not os.path.exists(folder + "/end"):
        began = time.monotonic(), time.thread_time()
        for _ in range(10):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        open(folder + "/begun", "w").close()
        with open(f"/proc/self/task/{thread}/schedstat") as file:
            sampler = int(file.read().split()[0]) / 1e9
        steps.append((began[0], time.monotonic(), (time.thread_time() - began[1]) / 10, sampler))
    return steps

def measure(rounds, rates, seconds):
    import tempfile, time
    with tempfile.TemporaryDirectory() as folder:
        job = notebook_launcher(work, (folder,), num_processes=1, device="cpu", block=False)
        while not os.path.exists(folder + "/begun"): time.sleep(0.01)
        turns = []
        for _ in range(rounds):
            for rate in (0, *rates):
                began = time.monotonic()
                job.flamegraph(seconds, rate=rate) if rate else time.sleep(seconds)
                turns.append((rate, began + 0.1 * seconds, began + 0.9 * seconds))
        open(folder + "/end", "w").close()
        steps = job.result()[0]
    found = {rate: {"step": [], "sampler": []} for rate in (0, *rates)}
    for rate, first, last in turns:
        inside = [each for each in steps if first <= each[0] and each[1] <= last]
        found[rate]["step"].append(sum(cpu for _, _, cpu, _ in inside) / len(inside))
        found[rate]["sampler"].append((inside[-1][3] - inside[0][3]) / (inside[-1][1] - inside[0][1]))
    print(json.dumps(found))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds, seconds = (6, 2.0) if parser.parse_args().quick else (12, 4.0)
    warn_if_busy()
    with Kernel(timeout=600) as kernel:
        kernel.run(_CODE)
        printed = kernel.run(f"measure({rounds}, {_RATES}, {seconds})")
    found = {int(rate): found for rate, found in json.loads(printed.splitlines()[-1]).items()}
    shares = {rate: Spread(each["sampler"]) for rate, each in found.items()}
    steps = {rate: Spread(each["step"]) for rate, each in found.items()}
    table(
        "In a rank",
        ["samples per second", "CPU of the thread, ms per second", "CPU of a step, µs", "ratio"],
        [
            [str(rate), shares[rate].text(1e-3), steps[rate].text(1e-6), steps[rate].over(steps[0]).ratio()]
            for rate in (0, *_RATES)
        ],
    )
    print()
    for rate, most in zip(_RATES, (1, 3), strict=True):
        extra = 100 * (shares[rate].median - shares[0].median)
        goal(f"{rate} samples per second, of a core", extra, most, "%")


if __name__ == "__main__":
    main()
