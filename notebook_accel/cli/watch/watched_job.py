"""Draws a watched launch: a job folded from the ranks' events, below the lines that they write."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from notebook_accel.cli.watch.watched_launch import LAUNCHER, WatchedLaunch
from notebook_accel.events import (
    AttemptStarted,
    CollectivesRecorded,
    Event,
    Exited,
    Hello,
    InputRequested,
    Lines,
    Notice,
    Phase,
    PhaseChanged,
    Returned,
    Signalled,
    Stacks,
    StopRequested,
)
from notebook_accel.launch.driver.rank_requests import RankRequests, Reachable
from notebook_accel.launch.driver.stall_watch import StallWatch
from notebook_accel.launch.job import location
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.job.rank_state import WAITS_FOR_INPUT
from notebook_accel.launch.job.text import label as rank_label
from notebook_accel.launch.show import console
from notebook_accel.launch.show.job_views import LateView, Views
from notebook_accel.launch.show.line_reader import LineReader
from notebook_accel.launch.show.output import Output

if TYPE_CHECKING:
    from notebook_accel.launch.show.terminal import TerminalView

_STALL_AFTER = 60.0
"""Seconds without progress after which a stall is reported."""

_AFTER_ANSWER = 1.0
"""Seconds after an answer in which nothing is drawn, since a debugger prompts again at once."""


class WatchedJob:
    """Draws the job on the terminal. Ranks are numbered locally on this machine.

    Args:
        subject: What is watched.
        ranks: Sends ranks requests for their stacks.
    """

    def __init__(self, subject: WatchedLaunch, ranks: Reachable) -> None:
        self._subject = subject
        self._ranks = ranks
        self._launcher = {"stdout": LineReader(), "stderr": LineReader()}
        self._final_notices: list[str] = []
        self._view: console.View
        self._draw_again_at = 0.0
        self._start_job(0)

    def add_rank(self, rank: int, who: Mapping[str, Any]) -> None:
        """Adds a process that has connected, perhaps a rank of a new attempt."""
        if rank == LAUNCHER:
            return
        first, attempt = who["rank"] - rank, who["attempt"]
        if (
            first != self._job.ranks[0].rank or self._job.status is Status.STARTING
        ):  # machines may be numbered by the rendezvous
            self._start_job(first)
            self._start_attempt(attempt)
        elif attempt > self._job.attempt:
            self._start_attempt(attempt)
        self._job.apply(rank, Hello(who["pid"], socket.gethostname()))

    def apply(self, rank: int, event: Event) -> None:
        """Applies an event of a rank."""
        if isinstance(event, (Stacks, CollectivesRecorded)):
            self._rank_requests.on_reply(rank, event, event.number)
        elif isinstance(event, Notice):
            self._final_notices.append(event.text)
        else:
            self._apply(rank, location.with_location(event) if isinstance(event, PhaseChanged) else event)

    def write(self, rank: int, stream: str, data: bytes) -> None:
        """Shows output of a rank, or of torch's launcher, which labels lines itself."""
        now = time.monotonic()
        if rank == LAUNCHER:
            lines = self._launcher[stream].feed(data, now)
            console.current.write(stream, "".join(f"{line}\n" for line in lines))
            return
        self._output.feed(self._job.ranks[rank].rank, stream, data, now)

    def prompt(self, rank: int, event: InputRequested, wait: AbstractContextManager[None]) -> str | None:
        """Prompts for a line while nothing is drawn; returns `None` if there is no input.

        Args:
            rank: Waits for the line.
            event: What it shows before that.
            wait: Is held while the terminal is waited for, and may end that with `KeyboardInterrupt`.
        """
        self._apply(rank, PhaseChanged(Phase.RUNNING, WAITS_FOR_INPUT))
        self._show_lines()
        self._view.finish()
        labeled = replace(event, prompt=self._label(self._job.ranks[rank].rank) + event.prompt)
        try:
            with wait:
                return console.current.request_input(labeled)
        except KeyboardInterrupt:
            console.current.write("stdout", "\n")  # what follows doesn't belong to the prompt
            raise
        finally:
            self._apply(rank, PhaseChanged(Phase.RUNNING))
            self._view = self._open_view()
            self._draw_again_at = time.monotonic() + _AFTER_ANSWER

    def refresh(self) -> None:
        """Shows changes."""
        if self._job.status is Status.STARTING:
            return
        now = time.monotonic()
        self._rank_requests.poll(now)
        self._stalls.check(now)
        self._output.show(now)
        if now >= self._draw_again_at:
            self._view.refresh()

    def notice(self, text: str) -> None:
        """Shows a notice."""
        console.current.notice(text)

    def interrupted(self, times: int) -> None:
        """Records how many times the ranks have been interrupted."""
        if times == self._job.stopping:
            return
        self._job.apply(None, StopRequested(times))
        self._note_signal(signal.SIGINT if times == 1 else signal.SIGKILL)

    def finish(self, code: int, *, interrupted: bool) -> None:
        """Draws the job's last state, and below it the notices of torch's launcher.

        Args:
            code: The exit code.
            interrupted: The user interrupted it.
        """
        for state in self._job.ranks:
            self._output.end(state.rank, time.monotonic())
        self._show_lines()
        self._rank_requests.close()
        if code:
            self._note_signal(signal.SIGTERM)
        for rank, state in enumerate(self._job.ranks):
            if not (state.answered or state.exited):
                self._job.apply(rank, Exited(code=None) if code else Returned())
        self._job.finish(Status.INTERRUPTED if interrupted else Status.FAILED if code else Status.DONE)
        self._view.refresh()
        self._view.finish()
        for text in self._final_notices:
            console.current.notice(text)

    def _start_job(self, first: int) -> None:
        """Starts a job whose first rank on this machine has this number."""
        subject = self._subject
        self._job = Job(subject.name, first, subject.size, subject.place, world_size=subject.world_size)
        self._label = partial(rank_label, None, first, subject.size, subject.world_size)
        self._view = self._open_view()
        self._start_attempt(None)

    def _start_attempt(self, attempt: int | None) -> None:
        """Starts an attempt; `None` means the first one, before its number is known."""
        if attempt is not None:
            self._show_lines()
            self._job.apply(None, AttemptStarted(attempt))
        elsewhere = self._subject.world_size - self._subject.size
        self._output = Output([state.rank for state in self._job.ranks], self._label, console.current)
        self._output.on_lines = self._on_lines
        self._rank_requests = RankRequests(self._ranks, self._job)
        self._stalls = StallWatch(self._job, _STALL_AFTER, elsewhere, self._rank_requests.request, time.monotonic())

    def _on_lines(self, rank: int, stream: str, lines: Sequence[str]) -> None:
        self._stalls.on_event(rank - self._job.launched.first, Lines(stream, lines), time.monotonic())

    def _apply(self, rank: int, event: Event) -> None:
        self._stalls.on_event(rank, event, time.monotonic())
        self._job.apply(rank, event)

    def _note_signal(self, signum: int) -> None:
        for rank, state in enumerate(self._job.ranks):
            if not (state.answered or state.exited):
                self._job.apply(rank, Signalled(signum))

    def _show_lines(self) -> None:
        self._output.show(time.monotonic(), all_of_it=True)

    def _open_view(self) -> console.View:
        return Views(self._job, LateView.opening(draw))


def draw(job: Job) -> TerminalView:
    """Opens the view of a job."""
    from notebook_accel.launch.show.terminal import TerminalView  # with rich, once there is something to draw

    return TerminalView(job)
