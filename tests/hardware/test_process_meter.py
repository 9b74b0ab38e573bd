"""The CPU time and memory of real processes, and of the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from notebook_accel.hardware.host_meter import HostMeter
from notebook_accel.hardware.process_meter import ProcessMeter

BUSY = """
import multiprocessing, os, threading, time

def work():
    kept = bytearray(30 * 2**20)
    barrier.wait()
    while True:
        pass

if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    barrier = multiprocessing.Barrier(3)
    for _ in range(2):
        worker = multiprocessing.Process(target=work, daemon=True)
        starter = threading.Thread(target=worker.start)  # a worker need not come from the main thread
        starter.start()
        starter.join()
    barrier.wait()
    print("ready", flush=True)
    input()
"""


def test_a_process_and_the_workers_that_it_has_started_are_measured(tmp_path: Path) -> None:
    script = tmp_path / "busy.py"
    script.write_text(BUSY)
    with subprocess.Popen([sys.executable, script], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        meter = ProcessMeter()
        first = meter.read([process.pid, os.getpid()])
        assert (first[process.pid].cpu, first[process.pid].children_cpu) == (0, 0)
        reading = first[process.pid]
        while reading.children_cpu < 1:  # ends once a tick of the system's clock was counted
            reading = meter.read([process.pid])[process.pid]
        assert (reading.children, reading.cpu < 50) == (2, True)
        assert reading.children_resident > 2 * 30 * 2**20
        assert 2**20 < reading.resident < 30 * 2**20
        assert first[os.getpid()].resident > 10 * 2**20
        process.communicate("\n")
    assert meter.read([process.pid]) == {}


def test_the_machine_is_measured(tmp_path: Path) -> None:
    meter = HostMeter(tmp_path)
    reading = meter.read()
    assert reading.cpu is None  # nothing is known of so short a time
    while reading.cpu is None:
        sum(range(10**5))
        reading = meter.read()
    assert 0 < reading.cpu <= 100
    assert reading.cores == os.cpu_count()
    assert {"memory", "disk"} <= reading.spaces.keys()
    assert all(0 < space.used < space.total for name, space in reading.spaces.items() if name != "/dev/shm")
