"""A real terminal for the command line."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil


def _take_terminal() -> None:
    """Makes the standard input the terminal of a new session, so that what is typed there can interrupt."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def launch(*arguments: str | Path, types: Sequence[tuple[str, str | Path]] = (), **environ: str) -> tuple[int, str]:
    """Runs a launch in a terminal of 100 columns; returns its exit code, and all that it has written there.

    Args:
        arguments: Of `notebook-accel launch`.
        types: What is typed, each once its pattern has been written, after that of the one before. A path is created
            instead, empty.
        environ: What is added to the environment.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    command = [sys.executable, "-m", "notebook_accel", "launch", *map(str, arguments)]
    environment = {**os.environ, "TERM": "xterm-256color", **environ}
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, preexec_fn=_take_terminal
    )
    os.close(theirs)
    written, seen, waiting = b"", 0, list(types)
    try:
        while True:
            try:
                data = os.read(ours, 2**16)
            except OSError:  # nobody has the other side any more
                break
            if not data:
                break
            written += data
            while waiting and (found := re.compile(waiting[0][0].encode()).search(written, seen)):
                seen = found.end()
                _wait_until_it_reads(process)
                _, typed = waiting.pop(0)
                if isinstance(typed, Path):
                    typed.touch()
                else:
                    os.write(ours, typed.encode())
    finally:
        os.close(ours)
        process.kill()
        process.wait(timeout=60)
    return process.returncode, written.decode()


def _wait_until_it_reads(process: subprocess.Popen[bytes]) -> None:
    """Waits until it waits for a key: just after its prompt, readline overlooks an interrupt until the next key."""
    with suppress(psutil.NoSuchProcess):
        watched = psutil.Process(process.pid)
        while watched.status() not in (psutil.STATUS_SLEEPING, psutil.STATUS_ZOMBIE):
            time.sleep(0.001)


def plain(written: str) -> str:
    """What is to be seen in the end, for a program that draws whole lines and goes back over some of them."""
    lines, row = [""], 0
    for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+", written):
        if part == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif up := re.fullmatch(r"\x1b\[(\d*)A", part):
            row -= int(up[1] or 1)
        elif part == "\x1b[2K":
            lines[row] = ""
        elif part[0] not in "\r\x1b":
            lines[row] += part
    return "\n".join(lines)
