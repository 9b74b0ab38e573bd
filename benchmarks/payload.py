"""What large captures cost: time and memory, compared with Accelerate's fork and plain cloudpickle."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import psutil
from common import IMPORTS, Kernel, goal, in_turn, port_argument, table

from tests.live_notebook import wait_until

RANKS = 4
NEEDED = 16
"""Copies of the tensor that are in memory at once: one in each kernel, and those that plain cloudpickle makes."""

# NumPy fills the tensor, on one thread: after threads of torch's, Accelerate's ranks would hang.
SETUP = """
import time
from pathlib import Path
import numpy
import torch

data = torch.from_numpy(numpy.ones(SIZE // 4, dtype=numpy.float32))

def empty(folder, stay):
    with open(f"{folder}/ready", "a") as file:
        file.write(".")
    while stay and not Path(folder, "go").exists():
        time.sleep(0.01)

def work(folder, stay):
    data[::1024].sum()  # every page
    empty(folder, stay)
"""
# Processes that wait with torch imported, so that what is timed is the pickling alone.
PLAIN = """
import subprocess, sys, threading
import cloudpickle

WORKER = '''
import gc, sys, cloudpickle, torch
print("up", flush=True)
while True:
    function, args = cloudpickle.load(sys.stdin.buffer)
    function(*args)
    del function, args
    print("done", flush=True)
    gc.collect()  # a function and its globals are a ring
'''
workers = [
    subprocess.Popen([sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for _ in range(RANKS)
]
for worker in workers:
    worker.stdout.readline()

def notebook_launcher(function, args, num_processes):
    raw = cloudpickle.dumps((function, args))
    def send(worker):
        worker.stdin.write(raw)
        worker.stdin.flush()
        worker.stdout.readline()
    threads = [threading.Thread(target=send, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""
WAYS = {**IMPORTS, "cloudpickle": PLAIN.replace("RANKS", str(RANKS))}


class Capture:
    """A kernel that holds a large tensor, and brings it to ranks in one way."""

    def __init__(self, way: str, size: int) -> None:
        self._way = way
        self._kernel = Kernel()
        self._kernel.run(SETUP.replace("SIZE", str(size)))
        self._kernel.run(WAYS[way])
        self._kernel.run(self._call("int", "()"))  # the first launch does more than later ones

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *_: object) -> None:
        self._kernel.__exit__()

    def launch(self) -> None:
        """Launches, and waits for the end of the cell."""
        with tempfile.TemporaryDirectory() as folder:
            self._kernel.run(self._call("work", f"({folder!r}, False)"))

    def extra_memory(self) -> int:
        """How many bytes more all processes have while every rank holds the tensor than in a launch without it."""
        return self._memory("work") - self._memory("empty")

    def _memory(self, function: str) -> int:
        with tempfile.TemporaryDirectory() as folder:
            cell = self._kernel.begin(self._call(function, f"({folder!r}, True)"))
            ready = Path(folder, "ready")
            wait_until(lambda: ready.exists() and ready.stat().st_size == RANKS, 120)
            found = self._kernel.memory()
            Path(folder, "go").touch()
            self._kernel.finish(cell)
            return found

    def _call(self, function: str, args: str) -> str:
        return f"notebook_launcher({function}, {args}, num_processes={RANKS}{port_argument(self._way)})"


def measure(*, quick: bool) -> None:
    gigabytes, rounds = (0.2, 1) if quick else (1.0, 5)
    available = psutil.virtual_memory().available / 1e9
    if gigabytes > available / NEEDED:
        print(f"{gigabytes:g} GB would need {NEEDED * gigabytes:g} GB of memory, and {available:.1f} are free: less")
        gigabytes = round(available / NEEDED, 1)
    size = int(gigabytes * 1e9)
    with contextlib.ExitStack() as stack:
        captures = {way: stack.enter_context(Capture(way, size)) for way in WAYS}
        seconds = in_turn({way: capture.launch for way, capture in captures.items()}, rounds)
        copies = {way: capture.extra_memory() / size for way, capture in captures.items()}
    ratios = {way: seconds["notebook-accel"].over(found) for way, found in seconds.items()}
    rows = [[way, seconds[way].text(), ratios[way].ratio(), f"{copies[way]:.2f}"] for way in WAYS]
    title = f"A captured tensor of {gigabytes:g} GB on {RANKS} ranks, {rounds} rounds"
    table(title, ["", "call to cell finished, ms", "notebook-accel / this", "extra copies in memory"], rows)
    goal("copies of the tensor in all ranks together, notebook-accel", copies["notebook-accel"], 1.1)
    goal("cell finished, notebook-accel / cloudpickle", ratios["cloudpickle"].median, 1.0)
    goal("cell finished, notebook-accel / Accelerate's fork", ratios["Accelerate"].median, 1.2)
