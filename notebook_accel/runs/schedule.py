"""Runs the trials of a sweep: as many at once as there are places for, each as a job of its own.

search ─▶ a free place ─▶ a job, unseen ─▶ its reports ─▶ halving, pruner ─▶ stop
                                        ─▶ its end     ─▶ trial, record, board
"""

from __future__ import annotations

import math
import os
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from notebook_accel.config.call_arguments import name_of
from notebook_accel.config.resolve import resolve
from notebook_accel.errors import JobLostError, NotebookAccelError
from notebook_accel.events import Event, JobEnded
from notebook_accel.insight.metric_steps import MetricSteps
from notebook_accel.launch.driver import attach, launcher
from notebook_accel.launch.driver.launcher import BACKGROUND, DETACHED, Call
from notebook_accel.launch.driver.notifications import ENDED, FAILED, Notification, Sender, in_words
from notebook_accel.launch.driver.stop_policy import StopRequests, catch_sigint
from notebook_accel.launch.job import text
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.rules import NewRule
from notebook_accel.launch.journal import records
from notebook_accel.launch.show import console
from notebook_accel.launch.show.console import Unseen
from notebook_accel.runs.board import Board
from notebook_accel.runs.record import Past, Record
from notebook_accel.runs.search import Halving, Search
from notebook_accel.runs.trial import State, Trial

_INTERVAL = 0.25
"""Seconds between two looks at the trials that run, and the shortest time between two drawings of the board."""
_LONGEST_TITLE = 120
Options = Mapping[str, Any]
"""Arguments of `notebook_launcher`."""


@dataclass(frozen=True)
class Order:
    """What a sweep runs."""

    call: Call
    """The function, with the arguments that all trials share."""
    options: Options
    """The arguments of each launch."""
    places: Sequence[Options]
    """For each trial that runs at once: further arguments, which name its devices."""
    detach: bool
    rules: Sequence[NewRule] = ()
    """The rules of each launch."""

    def arguments_of(self, place: Options, number: int, title: str) -> Options:
        """The arguments of one launch."""
        folder = resolve(self.options).checkpoint_dir  # wherever it was set: no two trials may share it
        checkpoint = {"checkpoint": f"{folder}/trial-{number}"} if folder else {}
        return {**self.options, **place, **checkpoint, "name": title}

    def call_of(self, parameters: Mapping[str, Any]) -> Call:
        """The call of one trial."""
        function, args, kwargs = self.call
        return function, args, {**kwargs, **parameters}


class Schedule:
    """The trials of one sweep, and the loop that runs them."""

    def __init__(
        self,
        order: Order,
        search: Search,
        trials: Sequence[Trial],
        record: Record,
        board: Board,
        *,
        metric: str | None,
        halving: Halving | None,
        past: Past | None,
    ) -> None:
        self._order = order
        self._name = name_of(order.call[0])
        self._search = search
        self._trials = trials
        self._record = record
        self._board = board
        config = resolve(order.options)
        self._sender = Sender(config.notify, {**os.environ, **config.env})
        self._metric = metric
        self._halving = halving
        self._past = past
        self._changed = threading.Event()
        self._over = threading.Event()
        self._free = list(range(len(order.places)))[::-1]
        self._places: dict[int, int] = {}
        """By trial that runs: its place."""
        self._steps: dict[int, MetricSteps] = {}
        self._stops: set[int] = set()
        """Trials that the user wants to stop."""
        self._interrupts = StopRequests()
        self._sent: Counter[int] = Counter()
        """By trial: how often its job was requested to stop."""

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the end of all trials; returns whether they have ended."""
        return self._over.wait(timeout)

    def stop(self, numbers: Sequence[int]) -> None:
        """Has trials stop; those that wait never begin."""
        self._stops.update(numbers)
        self._changed.set()

    def run(self) -> None:
        """Runs all trials. An interrupt stops them.

        Raises:
            KeyboardInterrupt: They were interrupted.
        """
        try:
            with catch_sigint(self._interrupts):
                self._adopt()
                while self._places or self._waiting():
                    self._changed.wait(_INTERVAL)
                    self._changed.clear()
                    self._look()
                    self._start()
                    self._board.refresh()
        except Exception as error:
            self._abandon(error)
            raise
        finally:
            self._record.add(owner="")
            self._board.finish()
            self._warn()
            self._notify()
            self._over.set()
        if self._interrupts.received:
            raise console.interrupted(
                f"the sweep was interrupted; sweep(..., resume={self._record.id!r}) continues it with the trials that "
                "are not done"
            )

    def _abandon(self, error: Exception) -> None:
        """Stops the trials that run, which nothing else would do now: a study may raise anything."""
        console.current.notice(
            f"the sweep ends, and its trials are stopped, because of {type(error).__name__}: {error}. "
            f"sweep(..., resume={self._record.id!r}) continues it"
        )
        for number in self._places:
            job = self._trials[number].running_job
            assert job is not None
            job.cancel()
        for trial in self._trials:
            if trial.state is State.RUNNING:
                trial.take_end()
            elif trial.state is State.WAITING:
                trial.state = State.CANCELLED
            else:
                continue
            self._record.add_end(trial)

    def _warn(self) -> None:
        """Says that trials that have ended can't be compared, because none reports the metric that is to compare."""
        ended = any(trial.state.counts for trial in self._trials)
        if self._metric is not None and ended and (why := self._board.facts.unreported(self._metric)):
            console.current.notice(why)

    def _notify(self) -> None:
        """Tells the user of the end; trials tell only of what happens before theirs."""
        states = {trial.state for trial in self._trials}
        status = State.FAILED if states == {State.FAILED} else State.DONE
        if self._interrupts.received or states == {State.CANCELLED}:
            status = State.CANCELLED
        event, facts = FAILED if status is State.FAILED else ENDED, self._board.facts
        found = Notification(event, self._record.id, facts.name, status.value, in_words([facts.headline]), "sweep")
        self._sender.send(found)

    def _waiting(self) -> list[Trial]:
        return [trial for trial in self._trials if trial.state is State.WAITING]

    def _adopt(self) -> None:
        """Takes over the jobs that an earlier kernel has left running, or that have ended since."""
        for trial in self._waiting():
            if self._past is None or trial.number not in self._past.detached or not self._free:
                continue
            try:
                record = records.find(trial.job_id, "")
                with console.using(Unseen(console.current)):
                    job = attach.follow(record)
            except NotebookAccelError:  # it is no longer recorded, so the trial runs again
                continue
            self._take(trial, job)
        self._changed.set()

    def _start(self) -> None:
        """Starts as many trials as there are places for."""
        for trial in self._waiting():
            if trial.number in self._stops or self._interrupts.received:
                trial.state = State.CANCELLED
                self._record.add_end(trial)
            elif self._free:
                trial.parameters = self._search.ask(trial.number)
                self._launch(trial)
            self._board.refresh()

    def _launch(self, trial: Trial) -> None:
        place = self._order.places[self._free[-1]]
        try:
            settings = resolve(
                self._order.arguments_of(
                    place, trial.number, text.shortened(f"{self._name} {trial.label}", _LONGEST_TITLE)
                )
            )
            with console.using(Unseen(console.current)):
                mode = DETACHED if self._order.detach else BACKGROUND
                call = self._order.call_of(trial.parameters)
                job = launcher.launch(settings, call, mode, part_of=self._record.id, rules=self._order.rules)
        except NotebookAccelError as error:
            trial.state, trial.error, trial.why = State.FAILED, error, str(error).split("\n", 1)[0]
            self._end(trial)
            return
        self._take(trial, job)
        self._record.add_begin(trial, detached=self._order.detach)

    def _take(self, trial: Trial, job: Job) -> None:
        trial.running_job, trial.job_id, trial.state = job, job.id, State.RUNNING
        self._places[trial.number] = self._free.pop()
        if self._metric is not None:
            self._steps[trial.number] = MetricSteps(job, self._metric)
        job.listen(self._on_event)
        if job.status.ended:
            self._changed.set()

    def _on_event(self, rank: int | None, event: Event) -> None:
        if isinstance(event, JobEnded):
            self._changed.set()

    def _look(self) -> None:
        """Looks at the trials that run: which have ended, and which should stop."""
        for number in list(self._places):
            trial = self._trials[number]
            job = trial.running_job
            assert job is not None
            if job.status.ended:
                self._judge(number)  # too late for itself, but others are compared with it
                trial.take_end()
                self._free.append(self._places.pop(number))
                self._steps.pop(number, None)
                self._end(trial)
                continue
            if number not in self._stops and not trial.why:
                trial.why = self._judge(number)
            wanted = max(len(self._interrupts.received), number in self._stops or bool(trial.why))
            while self._sent[number] < wanted:
                self._sent[number] += 1
                job.cancel()

    def _judge(self, number: int) -> str:
        """Why a trial that runs should stop, or an empty text."""
        steps = self._steps.get(number)
        try:
            values = [] if steps is None else steps.new()
        except JobLostError:
            return ""
        found = ""
        for drawn in values:  # all of them, since other trials are compared with them
            step, value = drawn.key[1], drawn.values.mean
            why = self._search.report(number, step, value)
            if self._halving is not None:
                why = self._halving.report(number, step, value) or why
            found = found or why
        return found

    def _end(self, trial: Trial) -> None:
        found = trial.measured.get(self._metric) if self._metric is not None else None
        value = found.last if found is not None and math.isfinite(found.last) else None
        self._search.tell(trial.number, value, failed=not trial.state.counts, stopped=trial.state is State.STOPPED)
        self._record.add_end(trial)
        self._board.note_end(trial)
