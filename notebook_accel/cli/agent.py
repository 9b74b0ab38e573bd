"""torch's elastic launcher in a process of its own, and the one that watches over it.

    command line ─ order ─▶ agent ─▶ ranks
      (this)     ◀─ exit ─  (torch.distributed.run)

The agent begins to import torch before the command line has read its options, so they cost no time. It stands in a
process group of its own: an interrupt from the terminal comes to the command line alone, which passes it on once. If
either dies, by whatever signal, the other ends the ranks.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import click

from notebook_accel.cli.main import INTERRUPTED, USER_ERROR
from notebook_accel.launch.engines import children

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

    from notebook_accel.cli.watcher import Watcher
    from notebook_accel.launch.stream import Channel

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_PATIENCE = 1.0
"""Seconds after an interrupt before saying what is being waited for."""
_PATIENT = "waiting for the ranks to end; interrupt again to kill them now"


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


class Agent:
    """The process that torch's launcher runs in, as the command line sees it."""

    def __init__(self) -> None:
        children.adopt_orphans()
        sys.stdout.flush()
        sys.stderr.flush()
        orders, self._orders = os.pipe()
        self._end, living = os.pipe()
        self._watcher: Watcher | None = None
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._orders)
            os.setpgid(0, 0)
            _serve(orders)
        os.close(orders)
        os.close(living)

    def run(self, order: Order, watcher: Watcher | None = None) -> int:
        """Has it run the order, and returns the exit code: the first failing rank's, where one failed.

        Args:
            order: What to run.
            watcher: Shows what the ranks do meanwhile.
        """
        self._watcher = watcher
        with (
            tempfile.TemporaryDirectory(prefix="notebook-accel-", ignore_cleanup_errors=True) as scratch,
            self._signals_passed_on(),
        ):
            address = "" if watcher is None else watcher.address
            order = replace(order, scratch=scratch, watcher=address)
            os.write(self._orders, json.dumps(asdict(order)).encode() + b"\n")
            if watcher is not None:
                watcher.attend(self._end)
            _, status = os.waitpid(self._pid, 0)
            code = os.waitstatus_to_exitcode(status)
            if code != 0:
                _kill_adopted()
            if watcher is not None:
                watcher.finish(code)
        if code == -signal.SIGKILL and not self._killed:
            click.echo("error: torch's launcher was killed (SIGKILL), perhaps for want of memory; its ranks have been "
                       "ended", err=True)  # fmt: skip
        return INTERRUPTED if self._killed else code if code >= 0 else 128 - code

    def dismiss(self) -> None:
        """Ends it, with whatever it has started."""
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)

    _killed = False
    _interrupted = False

    @contextlib.contextmanager
    def _signals_passed_on(self) -> Iterator[None]:
        before = {signum: signal.signal(signum, self._pass_on) for signum in _PASSED_ON}
        before[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._tell_patience)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for signum, handler in before.items():
                signal.signal(signum, handler)
            if self._interrupted:
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # one more would only hide the exit code

    def _pass_on(self, signum: int, _: FrameType | None) -> None:
        if signum == signal.SIGINT and self._interrupted:
            self._killed = True
            signum = signal.SIGKILL
        elif signum == signal.SIGINT:
            self._interrupted = True
            signal.setitimer(signal.ITIMER_REAL, _PATIENCE)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signum)
        if self._watcher is not None and self._interrupted:
            self._watcher.interrupt()

    def _tell_patience(self, _: int, __: FrameType | None) -> None:
        if self._watcher is not None:
            self._watcher.notice(_PATIENT)
        else:
            os.write(2, f"{_PATIENT}\n".encode())


def _kill_adopted() -> None:
    """Kills what is left of the launch: orphans are children of this process, and so are theirs, then."""
    while pids := children.pids():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _serve(orders: int) -> NoReturn:
    """The agent's life."""
    code = USER_ERROR
    try:
        children.adopt_orphans()
        for signum in _PASSED_ON:
            signal.signal(signum, signal.SIG_DFL)
        import torch.distributed.run  # noqa: F401  # the second that the command line uses otherwise

        line = _read_line(orders)
        if line:
            threading.Thread(target=_end_with, args=(orders,), name="end with it", daemon=True).start()
            code = _launch(Order(**json.loads(line)))
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BaseException as error:
        click.echo(f"error: torch's launcher has failed: {type(error).__name__}: {error}", err=True)
    finally:
        if code:
            _kill_adopted()  # torch forgets ranks that it was starting when the signal came
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


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

    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

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
                click.echo(text, err=True)
            else:
                _tell_watcher(watcher, text, error.failures.values())
        return failure.exitcode if failure.exitcode > 0 else 128 - failure.exitcode
    except SignalException as error:
        return 128 + error.sigval
    finally:
        for folder in (order.scratch, os.path.dirname(order.watcher)):
            if folder:
                shutil.rmtree(folder, ignore_errors=True)  # here too: the command line may be gone
    return 0


def _call_watcher(address: str) -> Channel:
    """Gives it what torch's launcher writes in Python, such as the lines of --tee; ranks get the terminal, for now."""
    from notebook_accel.cli import watched
    from notebook_accel.cli.watcher import LAUNCHER

    pipes = [os.pipe() for _ in watched.STREAMS]
    for name, (_, writing) in zip(watched.STREAMS.values(), pipes, strict=True):
        setattr(sys, name, open(writing, "w", buffering=1, encoding="utf-8"))  # noqa: SIM115  # lives as long as this
    os.environ[watched.VARIABLE] = address
    readings = [reading for reading, _ in pipes]
    return watched.call(address, [*watched.STREAMS.values()], readings, local_rank=LAUNCHER)


def _tell_watcher(watcher: Channel, text: str, failures: Iterable[ProcessFailure]) -> None:
    """Says what became of the launch, and of each rank that could not say it itself."""
    from notebook_accel.events import Exited, Notice, to_wire

    for each in failures:
        if each.exitcode != -signal.SIGTERM:
            code, killer = (each.exitcode, None) if each.exitcode >= 0 else (None, -each.exitcode)
            watcher.send({**to_wire(Exited(code=code, signal=killer))[0], "of": each.local_rank})
    watcher.send(to_wire(Notice(text))[0])


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
