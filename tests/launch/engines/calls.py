"""What ranks are made to do. Ranks import this by name, so it is light."""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any


def add(left: int, right: int) -> int:
    return left + right


def rank() -> int:
    return int(os.environ["RANK"])


def environment() -> dict[str, str]:
    return dict(os.environ)


def echo_environment() -> str:
    """As C code sees it."""
    return subprocess.run(["env"], capture_output=True, text=True, check=True).stdout


def change_environment() -> None:
    os.environ["LEFT_BEHIND"] = "1"
    del os.environ["RANK"]


def place() -> tuple[int, int, int, str]:
    return os.getpid(), os.getsid(0), os.getpgid(0), sys.stdin.read()


def display_among_lines(times: int) -> None:
    from IPython.display import HTML, clear_output, display

    for step in range(times):
        print("before")
        display(HTML(f"<b>{step}</b>"))
        print("after")
        clear_output()


def wait() -> None:
    while True:
        time.sleep(0.01)


def wait_deaf() -> None:
    """Waits, and heeds nothing but a kill."""
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.SIG_IGN)
    print("deaf", flush=True)
    wait()


def wait_unless_told(begun: str) -> str:
    """Creates a file once it can be told."""
    try:
        open(begun, "w").close()
        wait()
    except KeyboardInterrupt:
        return "saved"


class Deafening:
    """Waits in its destructor, where an exception can only be printed."""

    def __del__(self) -> None:
        print("in the destructor", flush=True)
        wait()


def wait_in_destructor() -> None:
    Deafening()
    print("went on", flush=True)
    wait()


def meet_but_for_one() -> None:
    """Meets the others, but for rank 1, which never comes."""
    if rank() == 1:
        wait()
    import torch.distributed

    torch.distributed.init_process_group("gloo")


def fail(text: str) -> None:
    try:
        {}["inner"]
    except KeyError as error:
        raise ValueError(text) from error


def fail_on(number: int) -> int:
    if rank() == number:
        raise ValueError(f"rank {number}")
    return rank()


def leave(code: Any) -> None:
    sys.exit(code)


def vanish(code: int) -> None:
    os._exit(code)


def kill_itself(signum: int) -> None:
    os.kill(os.getpid(), signum)
    wait()


def crash() -> None:
    ctypes.string_at(0)


def speak() -> None:
    libc = ctypes.CDLL(None)
    print("printed")
    print("complained", file=sys.stderr)
    os.write(1, b"written\n")
    os.write(2, b"written too\n")
    libc.puts(b"from C")
    subprocess.run(["echo", "from a child"], check=True)
    sys.stdout.write("no end")


def say(text: object) -> None:
    print(text)


def say_and_vanish(text: object) -> None:
    print(text, flush=True)
    os._exit(3)


def touch(path: str) -> None:
    with open(path, "w"):
        pass


def flood(size: int) -> None:
    sys.stdout.write("x" * size)
    sys.stdout.write("\n")


def flood_later(size: int) -> None:
    threading.Thread(target=flood, args=(size,)).start()


def flood_for_ever() -> None:
    def write() -> None:
        while True:
            print("x" * 1000)

    threading.Thread(target=write, daemon=True).start()


def leave_children() -> None:
    """Starts a child, and one in a session of its own with a child in another; tells their numbers and waits."""
    near = subprocess.Popen(["sleep", "1000"])
    tree = "setsid sh -c 'setsid sleep 1000 & echo $!; wait' & wait"
    far = subprocess.Popen(["sh", "-c", tree], start_new_session=True, stdout=subprocess.PIPE, text=True)
    assert far.stdout is not None
    print(near.pid, far.pid, far.stdout.readline().strip(), flush=True)
    wait()


def leave_children_and_return() -> list[int]:
    return [subprocess.Popen(["sleep", "1000"], start_new_session=far).pid for far in (False, True)]


def die_beside_a_child() -> None:
    """Rank 0 starts a child, tells its number and is killed; the others wait."""
    if rank() == 0:
        print(subprocess.Popen(["sleep", "1000"]).pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    wait()


def leave_a_thread() -> None:
    """Starts a thread that goes on until whoever ends the process waits for it."""

    ending = threading.Event()  # `main_thread().join()` holds a lock for a moment that an exit finds unlocked or fails
    threading._register_atexit(ending.set)  # type: ignore[attr-defined]

    def wait_for_the_end() -> None:
        ending.wait()
        print("the thread has ended")

    threading.Thread(target=wait_for_the_end).start()


def write_at_exit() -> None:
    """Leaves lines without an end to the buffers of Python and of C, when the process ends."""

    def write() -> None:
        sys.stdout.write("from Python")
        sys.stderr.write("from Python too")
        ctypes.CDLL(None).printf(b"from C")

    atexit.register(write)


def keep_connections(port: int) -> tuple[bool, bool]:
    """Connects to a port, to a server of its own, and to the other rank; once told to sever, which of these are cut.

    Returns:
        Whether the server still has its client, and whether the other rank can still be reached.
    """
    import torch.distributed as dist

    from notebook_accel.launch.rank import disconnect

    dist.init_process_group("gloo")
    with (
        socket.create_connection(("127.0.0.1", port)) as outside,
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as inside,
        listener.accept()[0] as accepted,
    ):
        dist.barrier()
        print("all are connected", flush=True)
        while not disconnect.times_disconnected:
            time.sleep(0.01)
        inside.settimeout(10)
        accepted.sendall(b"here too")
        outside.sendall(b"still here")
        has_client = inside.recv(100) == b"here too"
    try:
        dist.barrier()
    except RuntimeError:
        return has_client, False
    return has_client, True


def blocked_signals() -> list[int]:
    return sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))


def swell(size: int) -> None:
    block = bytearray(size)
    block[::4096] = b"x" * len(block[::4096])
    wait()


def big(size: int) -> bytes:
    return bytes(size)


def unpicklable() -> Any:
    return (number for number in range(3))


class CollectsAtLoading:
    """Is loaded as whether the garbage collector runs at that time."""

    def __reduce__(self) -> tuple[Any, ...]:
        return gc.isenabled, ()


def collects(at_loading: object) -> tuple[object, bool]:
    """Whether the garbage collector ran as the call was loaded, and runs now."""
    return at_loading, gc.isenabled()


class Unloadable:
    """Can be pickled, but not loaded."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def threads() -> int:
    import torch

    return torch.get_num_threads()


def reduce() -> float:
    """The sum over all ranks."""
    import datetime

    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=10))
    total = torch.tensor([float(rank() + 1)])
    dist.all_reduce(total)
    dist.destroy_process_group()
    return total.item()


def imported(names: list[str]) -> list[str]:
    """Which of these modules this rank has without having imported them."""
    return [name for name in names if name in sys.modules]


def attribute(module: str, name: str) -> Any:
    import importlib

    return getattr(importlib.import_module(module), name)


def parents() -> list[int]:
    """The processes above this one: its server, the keeper of that, and so on."""
    import psutil

    return [each.pid for each in psutil.Process().parents()]


def inherited() -> dict[str, Any]:
    """What a process has from the one that has started it."""
    import gc
    import locale
    import resource
    import signal
    import time

    mask = os.umask(0)
    os.umask(mask)
    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    return {
        "umask": mask,
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in names},
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "path": list(sys.path),
        "hour": time.localtime(0).tm_hour,
        "locale": locale.setlocale(locale.LC_CTYPE),
        "encodings": [sys.getfilesystemencoding(), sys.stdout.encoding],
        "handlers": {each: str(signal.getsignal(each)).partition(" at 0x")[0] for each in signal.valid_signals()},
        "collects": gc.isenabled(),
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "leads": os.getsid(0) == os.getpid(),
        "input": os.readlink("/proc/self/fd/0"),
    }


def numpy_state() -> list[int]:
    """The state of NumPy's random numbers."""
    import numpy as np

    return list(map(int, np.random.get_state()[1]))
