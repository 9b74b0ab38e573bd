"""PROCESS agent: forked by `agent_process.py`, runs torch's elastic launcher (`torch.distributed.run`)."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, NoReturn

from notebook_accel.cli.exit_codes import INTERRUPTED, USER_ERROR
from notebook_accel.launch.server import store
from notebook_accel.launch.system import own_process

if TYPE_CHECKING:
    from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""The signals that the command forwards to the agent, where torch passes them on to the ranks."""


def heeded_signals() -> list[signal.Signals]:
    """`SIGNALS`, without a hangup that the command was started to ignore: `nohup` keeps a launch past the login."""
    return [each for each in SIGNALS if each is not signal.SIGHUP or signal.getsignal(each) is not signal.SIG_IGN]


@dataclass(frozen=True)
class Order:
    """What the agent should run."""

    arguments: Sequence[str]
    """The command line of `torch.distributed.run`."""
    environment: Mapping[str, str]
    """Variables to add to the environment."""
    quiet: bool
    debug: bool
    world_size: int
    scratch: str = ""
    """A temporary folder for the logs of torch's launcher, which are not read."""


def run_agent(order: Order, end: int) -> NoReturn:
    """Runs the process, from its fork to its exit.

    Args:
        order: What to run.
        end: A pipe. When its other end closes, the command has ended, so the agent exits too.
    """
    code = USER_ERROR
    try:
        own_process.adopt_orphans()
        store.start_guard()  # while this process has one thread
        for signum in heeded_signals():
            signal.signal(signum, signal.SIG_DFL)
        _import_torch()
        threading.Thread(target=_terminate_on_close, args=(end,), name="notebook-accel-end", daemon=True).start()
        code = _launch(order)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BaseException as error:
        sys.stderr.write(f"error: torch's launcher has failed: {type(error).__name__}: {error}\n")
    finally:
        if code:
            own_process.kill_children()  # torch loses track of ranks that it was starting when the signal arrived
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _import_torch() -> None:
    """Imports torch's launcher, which takes a second."""
    # Importing makes hundreds of thousands of lasting objects; collecting garbage would take a sixth of the time.
    gc.disable()
    import torch.distributed.run  # noqa: F401

    gc.freeze()
    gc.enable()


def _terminate_on_close(fd: int) -> None:
    """Terminates the agent and its ranks when the other end of a pipe is closed, because the command has ended."""
    os.read(fd, 1)
    os.kill(os.getpid(), signal.SIGTERM)


def _launch(order: Order) -> int:
    """Runs torch's launcher, reports a failure of the ranks, and returns the exit code."""
    import logging

    from torch.distributed import DistError
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError
    from torch.distributed.run import parse_args, run

    from notebook_accel.cli.launch import loopback_rendezvous

    loopback_rendezvous.register()
    _kill_ranks_with_agent()
    _heed_each_signal_once()
    os.environ.update(order.environment)
    if not order.debug:
        logging.disable()  # the messages below are shorter
    arguments = list(order.arguments)
    if not any(each.startswith("--log-dir") for each in arguments):
        arguments.insert(0, f"--log-dir={order.scratch}")  # otherwise torch would leave a folder behind
    try:
        run(parse_args(arguments))  # type: ignore[no-untyped-call]
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if not order.quiet:
            ended = [each.exitcode for each in error.failures.values() if each.exitcode != -signal.SIGTERM]
            sys.stderr.write(f"{explain_failure(rank, failure.exitcode, order.world_size, len(ended))}\n")
        return failure.exitcode if failure.exitcode > 0 else 128 - failure.exitcode
    except SignalException as error:
        return 128 + error.sigval
    except (RendezvousError, DistError) as error:
        sys.stderr.write(f"{_explain_rendezvous_error(error)}\n")
        return USER_ERROR
    finally:
        shutil.rmtree(order.scratch, ignore_errors=True)  # here too, because the command may have ended
    return 0


def _kill_ranks_with_agent() -> None:
    """Makes the kernel kill each rank when this process ends, since after a SIGKILL no code here could do it."""
    from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

    popen = partial(subprocess.Popen, preexec_fn=partial(own_process.die_with_parent, os.getpid()))
    if hasattr(subprocess_handler, "Popen"):
        subprocess_handler.Popen = popen
    else:  # torch 2.8 imports the module instead
        subprocess_handler.subprocess = SimpleNamespace(Popen=popen)  # type: ignore[attr-defined]


def _heed_each_signal_once() -> None:
    """Makes torch's launcher ignore a signal that it has had: a further one would end its wait for the ranks.

    A supervisor may signal the command and all other processes of its control group, and the command forwards its own
    signal to this process.
    """
    from torch.distributed.elastic.multiprocessing import api

    handle, heeded = api._terminate_process_handler, set[int](SIGNALS) - set(heeded_signals())

    def handle_once(signum: int, frame: FrameType | None) -> None:
        if signum not in heeded:
            heeded.add(signum)
            handle(signum, frame)

    api._terminate_process_handler = handle_once


def _explain_rendezvous_error(error: Exception) -> str:
    """The message for a failed rendezvous: torch's reason, and what to check."""
    reason = [*str(error.__cause__ or error).splitlines(), "one of them is missing"][0]
    return (
        f"error: the rendezvous of the machines failed, or the first machine has ended: {reason}\n"
        "Check that the same command runs on each machine, with --main_process_ip and --main_process_port of the "
        "first, that no firewall separates them, and that the first has not ended. --rdzv_conf "
        "timeout=…,join_timeout=… sets how many seconds they wait."
    )


def explain_failure(rank: int, exitcode: int, world_size: int, failures: int) -> str:
    """`rank 1 of 4 ended with exit code 3, …`."""
    if exitcode < 0:
        signum = signal.Signals(-exitcode)
        how = f"was killed by {signum.name}"
        if signum is signal.SIGKILL:
            how += ", perhaps because memory ran out"
    else:
        how = f"ended with exit code {exitcode}; see its output above"
    others = f". {failures - 1} more failed afterwards" if failures > 1 else ""
    return f"error: rank {rank} of {world_size} {how}{others}"
