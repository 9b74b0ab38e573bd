"""How a rank that runs a script ends: as Python ends it, whatever torch's threads do at that moment."""

import gzip
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from notebook_accel.cli.launch import wrapper
from tests.cli.launch.test_command import launch

# What the end has to see to: each of these would be lost if the process just left.
REGISTERED = """
import atexit, gc, gzip, multiprocessing, os, signal, sys, threading, time, types

# For whoever ends the process, torch's group is open.
sys.modules["torch.distributed"] = types.SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True)

class Last:
    def __del__(self, write=os.write):
        write(1, b"finalizer ")

# Not `main_thread().join()`: while that holds the main thread's lock, an exit that begins fails.
exiting = threading.Event()
threading._register_atexit(exiting.set)

def after_main():
    exiting.wait()
    os.write(1, b"thread ")

def child(gate, opening):
    os.close(opening)  # so that it also ends if the gate is never opened
    os.read(gate, 1)
    os.write(1, b"child ")

def at_exit():
    os.write(1, b"handler ")
    os.write(opening, b".")

if __name__ == "__main__":
    gate, opening = os.pipe()
    multiprocessing.Process(target=child, args=(gate, opening)).start()
    atexit.register(at_exit)
    last = Last()
    threading.Thread(target=after_main).start()
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
    file = open("file", "w")
    compressed = gzip.open("file.gz", "wt")
    if "CYCLE" in os.environ:
        gc.disable()  # else it may be collected before the end, and Python itself loses what a text file holds then
        cycle = [open("cycle", "w"), gzip.open("cycle.gz", "wt")]
        cycle.append(cycle)
        for each in cycle[:2]:
            each.write("text")
        del cycle, each
    for each in file, compressed, sys.stdout:
        each.write("text ")
"""

ENDS = {
    "it is done": ("", 0),
    "sys.exit(7)": ("sys.exit(7)", 7),
    "sys.exit(-1)": ("sys.exit(-1)", 255),
    "sys.exit()": ("sys.exit()", 0),
    "sys.exit with text": ("sys.exit('no data')", 1),
    "an exception": ("(lambda: 1 / 0)()", 1),
    "a hook of its own": ("sys.excepthook = lambda *_: print('hook', end=' '); 1 / 0", 1),
    "an interrupt": (
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n    signal.raise_signal(signal.SIGINT)",
        -signal.SIGINT,
    ),
}


def run(script: Path, folder: Path, *command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir()
    return subprocess.run(
        [sys.executable, *command, str(script)],
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("end", ENDS)
def test_a_script_whose_group_is_open_ends_as_python_ends_it(tmp_path: Path, end: str) -> None:
    statement, code = ENDS[end]
    script = tmp_path / "train.py"
    script.write_text(f"{REGISTERED}    {statement}\n")
    of_python = run(script, tmp_path / "python")
    done = run(script, tmp_path / "rank", wrapper.__file__)
    assert done.returncode == of_python.returncode == code, done.stderr
    assert done.stderr == of_python.stderr
    assert set(done.stdout.split()) == {"handler", "finalizer", "thread", "child", "text", *["hook"] * ("hook" in end)}
    assert sorted(done.stdout.split()) == sorted(of_python.stdout.split())
    # Python itself leaves the second unfinished where a traceback holds it.
    assert (tmp_path / "rank" / "file").read_text() == "text "
    with gzip.open(tmp_path / "rank" / "file.gz", "rt") as file:
        assert file.read() == "text "


def test_files_are_whole_that_only_a_cycle_holds(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(REGISTERED)
    assert run(script, tmp_path / "rank", wrapper.__file__, CYCLE="1").returncode == 0
    assert (tmp_path / "rank" / "cycle").read_text() == "text"
    with gzip.open(tmp_path / "rank" / "cycle.gz", "rt") as file:
        assert file.read() == "text"


def test_a_script_without_a_group_is_left_to_python(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys\nclass Last:\n    def __del__(self, sys=sys): print(sys.is_finalizing())\nlast = Last()"
    )
    assert run(script, tmp_path / "rank", wrapper.__file__).stdout == run(script, tmp_path / "python").stdout


def test_an_interrupt_while_threads_are_awaited_ends_only_the_wait(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        f"{REGISTERED}    signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "    threading._register_atexit(lambda: signal.raise_signal(signal.SIGINT))\n"
        "    sys.exit(7)\n"
    )
    for name, command in {"python": (), "rank": (wrapper.__file__,)}.items():
        done = run(script, tmp_path / name, *command)
        assert done.returncode == 7
        assert "<module 'threading' from " in done.stderr
        assert done.stderr.rstrip(": \n").endswith("KeyboardInterrupt")
        assert {"handler", "child", "text"} <= set(done.stdout.split())
    assert (tmp_path / "rank" / "file").read_text() == "text "


# Rank 0's last exit handler keeps Python's lock until rank 1 has completed the collective, and a second longer, so that
# torch's thread waits for the lock as the interpreter begins to finalize.
UNDER_WAY = """
import atexit, ctypes, os, sys

def end():
    sys.setswitchinterval(100)
    library = ctypes.PyDLL(None)
    library.open(os.fsencode(sys.argv[1]), os.O_WRONLY)  # waits for a reader
    library.open(os.fsencode(sys.argv[2]), os.O_WRONLY)
    library.usleep(1_000_000)

if os.environ["RANK"] == "0":
    atexit.register(end)

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    dist.all_reduce(torch.ones(2), async_op=True)
else:
    open(sys.argv[1])
    dist.all_reduce(torch.ones(2))
    open(sys.argv[2])
"""


def test_a_rank_may_end_while_a_thread_of_torch_is_at_work(tmp_path: Path) -> None:
    """Takes 10 s: two ranks import torch, and one waits a second for the other's thread."""
    script = tmp_path / "train.py"
    script.write_text(UNDER_WAY)
    gates = tmp_path / "ends", tmp_path / "has reduced"
    for each in gates:
        os.mkfifo(each)
    done = launch("--cpu", "--num_processes=2", script, *gates)
    assert (done.returncode, done.stderr) == (0, "")
