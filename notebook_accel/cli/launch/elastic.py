"""The agent: the process that torch's elastic launcher runs in, and all that happens there."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from notebook_accel.cli.exit_codes import INTERRUPTED, USER_ERROR
from notebook_accel.launch.system import children, libc

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

    from notebook_accel.launch.wire.stream import Channel

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Those that are for the ranks."""


@dataclass(frozen=True)
class Order:
    """What the agent is to run."""

    arguments: Sequence[str]
    """The command line of `torch.distributed.run`."""
    environment: Mapping[str, str]
    """What is added to the environment."""
    quiet: bool
    debug: bool
    world_size: int
    scratch: str = ""
    """A folder for what torch's launcher writes and nobody reads."""
    watcher: str = ""
    """Where whoever watches the ranks is called; empty if nobody does."""


def serve(orders: int) -> NoReturn:
    """The agent's life, from its fork to its end."""
    code = USER_ERROR
    try:
        children.adopt_orphans()
        for signum in SIGNALS:
            signal.signal(signum, signal.SIG_DFL)
        _import_torch()
        line = _read_line(orders)
        if line:
            threading.Thread(target=_end_with, args=(orders,), name="end with it", daemon=True).start()
            code = _launch(Order(**json.loads(line)))
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BaseException as error:
        sys.stderr.write(f"error: torch's launcher has failed: {type(error).__name__}: {error}\n")
    finally:
        if code:
            children.kill_all()  # torch forgets ranks that it was starting when the signal came
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _import_torch() -> None:
    """Takes the second that the command line uses otherwise."""
    gc.disable()  # an import makes hundreds of thousands of objects that stay: to look for garbage takes a sixth of it
    import torch.distributed.run  # noqa: F401

    gc.freeze()
    gc.enable()


def _read_line(fd: int) -> bytes:
    line = b""
    while not line.endswith(b"\n") and (more := os.read(fd, 2**16)):
        line += more
    return line


def _end_with(fd: int) -> None:
    """Ends the agent, and with it the ranks, when the command line is gone."""
    os.read(fd, 1)
    os.kill(os.getpid(), signal.SIGTERM)


def _launch(order: Order) -> int:
    """Runs torch's launcher to its end, and says what became of the ranks."""
    import logging

    from torch.distributed import DistError
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError
    from torch.distributed.run import parse_args, run

    from notebook_accel.cli.launch import loopback_rendezvous

    loopback_rendezvous.register()
    _end_ranks_with_this()
    os.environ.update(order.environment)
    watcher = _call_watcher(order.watcher) if order.watcher else None
    if not order.debug:
        logging.disable()  # what it would say is said below, in fewer lines
    arguments = list(order.arguments)
    if not any(each.startswith("--log-dir") for each in arguments):
        arguments.insert(0, f"--log-dir={order.scratch}")  # torch would leave its own behind
    try:
        run(parse_args(arguments))  # type: ignore[no-untyped-call]
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if not order.quiet:
            ended = [each.exitcode for each in error.failures.values() if each.exitcode != -signal.SIGTERM]
            text = _how_it_failed(rank, failure.exitcode, order.world_size, len(ended))
            if watcher is None:
                sys.stderr.write(f"{text}\n")
            else:
                _tell_watcher(watcher, text, error.failures.values())
        return failure.exitcode if failure.exitcode > 0 else 128 - failure.exitcode
    except SignalException as error:
        return 128 + error.sigval
    except (RendezvousError, DistError) as error:
        sys.stderr.write(f"{_how_meeting_failed(error)}\n")
        return USER_ERROR
    finally:
        for folder in (order.scratch, os.path.dirname(order.watcher)):
            if folder:
                shutil.rmtree(folder, ignore_errors=True)  # here too: the command line may be gone
    return 0


def _end_ranks_with_this() -> None:
    """Has the system kill each rank when this process ends, in whatever way: then nobody is left who could."""
    from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

    begin = partial(libc.die_with_parent, os.getpid())
    subprocess_handler.Popen = partial(subprocess.Popen, preexec_fn=begin)  # type: ignore


def _call_watcher(address: str) -> Channel:
    """Gives it what torch's launcher writes in Python, such as the lines of --tee; ranks get the terminal, for now."""
    from notebook_accel.cli.watch import watched_rank
    from notebook_accel.cli.watch.subject import LAUNCHER

    pipes = [os.pipe() for _ in watched_rank.STREAMS]
    for name, (_, writing) in zip(watched_rank.STREAMS.values(), pipes, strict=True):
        setattr(sys, name, open(writing, "w", buffering=1, encoding="utf-8"))  # noqa: SIM115  # lives as long as this
    os.environ[watched_rank.VARIABLE] = address
    readings = [reading for reading, _ in pipes]
    return watched_rank.call(address, [*watched_rank.STREAMS.values()], readings, local_rank=LAUNCHER)


def _tell_watcher(watcher: Channel, text: str, failures: Iterable[ProcessFailure]) -> None:
    """Says what became of the launch, and of each rank that could not say it itself."""
    from notebook_accel.events import Exited, Notice, to_wire

    for each in failures:
        if each.exitcode != -signal.SIGTERM:
            code, killer = (each.exitcode, None) if each.exitcode >= 0 else (None, -each.exitcode)
            watcher.send({**to_wire(Exited(code=code, signal=killer))[0], "of": each.local_rank})
    watcher.send(to_wire(Notice(text))[0])


def _how_meeting_failed(error: Exception) -> str:
    """What torch's launcher says when it cannot reach the others, and what may be the reason."""
    said = [*str(error.__cause__ or error).splitlines(), "one of them is missing"][0]
    return (
        f"error: the machines did not meet, or the first of them is gone: {said}\n"
        "Check that the same command runs on each of them, with --main_process_ip and --main_process_port of the "
        "first, that no firewall is between them, and that the first has not ended. --rdzv_conf "
        "timeout=…,join_timeout=… sets the seconds they wait."
    )


def _how_it_failed(rank: int, exitcode: int, world_size: int, failures: int) -> str:
    """`rank 1 of 4 ended with exit code 3, …`."""
    if exitcode < 0:
        signum = signal.Signals(-exitcode)
        how = f"was killed by {signum.name}"
        if signum is signal.SIGKILL:
            how += ", perhaps for want of memory"
    else:
        how = f"ended with exit code {exitcode}; what it said is above"
    others = f". {failures - 1} more failed after it" if failures > 1 else ""
    return f"error: rank {rank} of {world_size} {how}{others}"
