"""What large captures cost: time and memory, compared with Accelerate's fork and plain cloudpickle."""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import psutil
from common import IMPORTS, Kernel, Spread, goal, port_argument, table, warn_if_busy

from notebook_accel.launch.wire import payload
from notebook_accel.launch.wire.stream import Message

RANKS = 4
TIMEOUT = 120.0
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
        self._kernel = Kernel(TIMEOUT)
        self._kernel.run(SETUP.replace("SIZE", str(size)))
        self._kernel.run(WAYS[way])
        self._kernel.run(self._call("int", "()"))  # the first launch does more than later ones

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *_: object) -> None:
        self._kernel.__exit__()

    def seconds(self) -> float:
        """From the call to the end of the cell."""
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            self._kernel.run(self._call("work", f"({folder!r}, False)"))
            return time.perf_counter() - began

    def extra_memory(self) -> int:
        """How many bytes more all processes have while every rank holds the tensor than in a launch without it."""
        return self._memory("work") - self._memory("empty")

    def _memory(self, function: str) -> int:
        with tempfile.TemporaryDirectory() as folder:
            message = self._kernel.begin(self._call(function, f"({folder!r}, True)"))
            ready, deadline = Path(folder, "ready"), time.monotonic() + TIMEOUT
            while (not ready.exists() or ready.stat().st_size < RANKS) and time.monotonic() < deadline:
                time.sleep(0.05)
            found = self._kernel.memory()
            Path(folder, "go").touch()
            self._kernel.finish(message)
            return found

    def _call(self, function: str, args: str) -> str:
        return f"notebook_launcher({function}, {args}, num_processes={RANKS}{port_argument(self._way)})"


def measure_capture(size: int, rounds: int) -> None:
    """All ways in turn."""
    with contextlib.ExitStack() as stack:
        captures = {way: stack.enter_context(Capture(way, size)) for way in WAYS}
        turns = [[capture.seconds() for capture in captures.values()] for _ in range(rounds)]
        seconds = {way: Spread(column) for way, column in zip(captures, zip(*turns, strict=True), strict=True)}
        copies = {way: capture.extra_memory() / size for way, capture in captures.items()}
    ratios = {way: seconds["notebook-accel"].over(found) for way, found in seconds.items()}
    rows = [[way, seconds[way].text(), ratios[way].ratio(), f"{copies[way]:.2f}"] for way in WAYS]
    title = f"A captured tensor of {size / 1e9:g} GB on {RANKS} ranks, {rounds} rounds"
    table(title, ["", "call to cell finished, ms", "notebook-accel / this", "extra copies in memory"], rows)
    goal("copies of the tensor in all ranks together, notebook-accel", copies["notebook-accel"], 1.1)
    goal("cell finished, notebook-accel / cloudpickle", ratios["cloudpickle"].median, 1.0)
    goal("cell finished, notebook-accel / Accelerate's fork", ratios["Accelerate"].median, 1.2)


def kinds() -> dict[str, Callable[[], Any]]:
    """Functions as a notebook has them, by what they capture."""
    import numpy
    import torch

    number, array = 3, numpy.ones(100_000_000 // 8)
    model = torch.nn.Sequential(*(torch.nn.Linear(1020, 1020) for _ in range(12)))
    return {
        "small closure": lambda: number + 1,
        "NumPy array, 100 MB": lambda: array[0],
        "nn.Module, 50 MB": lambda: next(model.parameters()),
    }


def measure_kinds(rounds: int) -> None:
    """Packing in this process, loading in a fresh one."""
    rows = []
    with _loader() as load:
        for name, function in kinds().items():
            times: list[list[float]] = []
            for _ in range(rounds):
                began = time.perf_counter()
                packed = payload.pack(function, (), {})
                middle = time.perf_counter()
                plain = cloudpickle.dumps((function, (), {}))
                end = time.perf_counter()
                with packed, tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
                    file.write(plain)
                    file.flush()
                    loads = load(os.getpid(), packed, file.name)
                times.append([middle - began, end - middle, *loads])
            pack, dump, unpack, loads_plain = (Spread(column) for column in zip(*times, strict=True))
            rows.append(
                [
                    name,
                    *(found.text(digits=2) for found in (pack, dump)),
                    pack.over(dump).ratio(),
                    *(found.text(digits=2) for found in (unpack, loads_plain)),
                    unpack.over(loads_plain).ratio(),
                ]
            )
    head = [
        "ms",
        "pack: notebook-accel",
        "cloudpickle",
        "ratio",
        "load in a rank: notebook-accel",
        "cloudpickle",
        "ratio",
    ]
    table(f"Payloads, {rounds} rounds", head, rows)


@contextlib.contextmanager
def _loader() -> Iterator[Callable[..., Sequence[float]]]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.apply(_load_once)
        yield lambda *arguments: pool.apply(_load, arguments)


def _load_once() -> None:
    import torch  # noqa: F401  # as in a rank, it is there already


def _load(owner: int, packed: payload.Payload, plain: str) -> list[float]:
    """Seconds to load a payload, and to load the same call from a file in memory."""
    fds = [os.open(f"/proc/{owner}/fd/{fd}", os.O_RDONLY) for fd in packed.fds]
    message = Message({}, [bytearray(part) for part in packed.parts], fds)
    began = time.perf_counter()
    payload.receive(message, packed.layout)
    middle = time.perf_counter()
    with open(plain, "rb") as file:
        cloudpickle.load(file)
    return [middle - began, time.perf_counter() - middle]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smaller tensor, and fewer rounds")
    parser.add_argument("--size", type=float, default=1.0, help="the captured tensor's, in GB")
    arguments = parser.parse_args()
    warn_if_busy()
    size = 0.2 if arguments.quick else arguments.size
    available = psutil.virtual_memory().available / 1e9
    if size > available / NEEDED:
        print(f"{size:g} GB would need {NEEDED * size:g} GB of memory, and {available:.1f} are free: a smaller tensor")
        size = round(available / NEEDED, 1)
    measure_kinds(5 if arguments.quick else 15)
    measure_capture(int(size * 1e9), 2 if arguments.quick else 5)


if __name__ == "__main__":
    main()
