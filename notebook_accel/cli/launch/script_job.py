"""Runs a script's ranks on one machine as a job: on the fork server, as `notebook_launcher` runs a function's."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from notebook_accel.cli.exit_codes import TIMED_OUT, USER_ERROR
from notebook_accel.launch import engines
from notebook_accel.launch.system import own_process

if TYPE_CHECKING:
    from notebook_accel.launch.driver.launch import Launch
    from notebook_accel.launch.driver.stop_policy import StopReason, StopRequests
    from notebook_accel.launch.job.job import Job
    from notebook_accel.launch.job.rank_state import RankState
    from notebook_accel.launch.journal.saved_launch import SavedLaunch
    from notebook_accel.launch.plan.plan import Plan
    from notebook_accel.launch.show.console import View


def warm() -> None:
    """Starts the fork server, which imports torch while the command parses its options."""
    own_process.adopt_orphans()
    engines.for_script().warm(script=True)


def end_server() -> None:
    """Ends the fork server that `warm` has started, at once."""
    engines.for_script().close()
    own_process.kill_children()


def finish() -> None:
    """Ends the fork server at the end of the command, and lets later commands start faster."""
    end_server()
    engines.for_script().share(at_exit=True)


def run(planned: Plan, words: Sequence[str], name: str, *, quiet: bool) -> int:
    """Runs a script, and returns the exit code.

    Args:
        planned: Where the ranks run.
        words: The script with its arguments, or `--module` and a module's.
        name: What the panel calls it.
        quiet: Whether to show nothing but what the script writes.
    """
    from notebook_accel.launch.driver.launch import Launch
    from notebook_accel.launch.job import rank_error
    from notebook_accel.launch.plan import conflicts
    from notebook_accel.launch.rank import script
    from notebook_accel.launch.show import console
    from notebook_accel.launch.wire import payload
    from notebook_accel.launch.wire.constants import Streams

    class Quiet(console.Terminal):
        def notice(self, text: str) -> None:
            pass

    if quiet:
        console.use(Quiet())
    drawn = console.can_draw() and sys.stdout.isatty() and not quiet
    engine = engines.for_script(_source(words))
    if engine is not engines.for_script():
        end_server()
    saved = _saved(planned, words, name)
    if saved is not None:
        conflicts.refuse_shared_folder(planned, saved.checkpoint_dir)
    packed = payload.pack(script.run, (list(words), _path()), {}, mirror=False)
    launch = Launch(
        engine,
        replace(planned, notice="", call=" ".join(words)),
        {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", **os.environ},  # as torch's launcher sets it
        packed,
        name,
        _view(drawn=drawn, quiet=quiet),
        saved=saved,
        streams=Streams.SCRIPT if drawn else Streams.DRIVERS,
    )
    with _forwarding_signals(launch.requests):
        launch.announce()
        launch.run()
    return _exit_code(launch, rank_error.failed(launch.job.ranks), quiet=quiet)


def _saved(planned: Plan, words: Sequence[str], name: str) -> SavedLaunch | None:
    """What is needed to launch the script again, if it saves checkpoints."""
    if not planned.config.checkpoint_dir:
        return None
    from notebook_accel.launch.driver import stored_code
    from notebook_accel.launch.driver.launcher import BLOCKING
    from notebook_accel.launch.rank import script
    from notebook_accel.launch.wire import payload

    config = replace(planned.config, num_processes=planned.size)
    with payload.pack(script.run, (list(words), _path()), {}) as packed:
        return stored_code.save(config, packed, script.run, name, BLOCKING, list)


def _source(words: Sequence[str]) -> str:
    """The text of the script, module or notebook in this folder; empty if it is elsewhere."""
    target = Path(words[0])
    if words[0] == "--module":
        path = Path(*words[1].split("."))
        target = Path(words[3]) if words[1].endswith(".notebook_rank") else path.with_suffix(".py")
        target = target if target.is_file() else path / "__main__.py"
    elif target.is_dir():
        target /= "__main__.py"
    with contextlib.suppress(OSError):
        return target.read_text(errors="replace")
    return ""


def _path() -> list[str]:
    """The `sys.path` of an interpreter that has no script yet."""
    path = sys.path[0 if getattr(sys.flags, "safe_path", False) else 1 :]
    home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    return path if home in path else [*path, home]  # a copy that is not installed


def _view(*, drawn: bool, quiet: bool) -> Callable[[Job], View]:
    from notebook_accel.launch.show import console
    from notebook_accel.launch.show.job_views import LateView

    if not drawn:
        return console.NoView if quiet else console.StallNotices

    def draw(job: Job) -> View:
        from notebook_accel.launch.show.terminal import TerminalView  # with rich, once there is something to draw

        return TerminalView(job)

    return LateView.opening(draw)


def _reasons() -> dict[signal.Signals, StopReason]:
    """The reason to stop that each signal is. The ranks get the same signal."""
    from notebook_accel.launch.driver.stop_policy import StopReason

    return {
        signal.SIGINT: StopReason.INTERRUPT,
        signal.SIGTERM: StopReason.TERMINATION,
        signal.SIGHUP: StopReason.HANGUP,
        signal.SIGQUIT: StopReason.QUIT,
    }


@contextlib.contextmanager
def _forwarding_signals(requests: StopRequests) -> Iterator[None]:
    """Turns signals into requests to stop: the first one, and a second interrupt, which kills the ranks."""
    from notebook_accel.cli.launch.elastic import heeded_signals

    reasons = _reasons()

    def submit(signum: int, _: FrameType | None) -> None:
        if not requests.received or signum == signal.SIGINT:
            requests.submit(reasons[signal.Signals(signum)])

    before = {signum: signal.signal(signum, submit) for signum in heeded_signals()}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
        if reasons[signal.SIGINT] in requests.received:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # another interrupt would only hide the exit code


def _exit_code(launch: Launch, failed: Sequence[RankState], *, quiet: bool) -> int:
    """The exit code of a launch that has ended; says which rank has failed, and how."""
    from notebook_accel.cli.launch.elastic import explain_failure
    from notebook_accel.errors import LaunchError, RankTimeoutError
    from notebook_accel.launch.job.job_state import Status

    job, received = launch.job, launch.requests.received
    try:
        job.result()
    except LaunchError as error:
        sys.stderr.write(f"error: {error}\n")
        return 128 + signal.SIGKILL if error.engine_lost else USER_ERROR
    except RankTimeoutError as error:
        if not quiet:
            sys.stderr.write(f"error: {error}\n")
        return TIMED_OUT
    except BaseException:
        pass
    if received:
        signals = {reason: signum for signum, reason in _reasons().items()}
        return 128 + signals.get(received[0], signal.SIGINT)
    if job.status is Status.DONE:
        return 0
    if not failed:
        return 1
    first = failed[0]
    assert first.exited is not None
    code = -first.exited.signal if first.exited.signal else first.exited.code or 1
    if not quiet:
        sys.stderr.write(f"{explain_failure(first.rank, code, len(job.ranks), len(failed))}\n")
    return code if code >= 0 else 128 - code
