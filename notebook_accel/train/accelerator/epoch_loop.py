"""The loop over `Accelerator.epochs`: it saves checkpoints on the way, and continues from the last one.

A *point* is the end of a training step, or of an epoch: where a checkpoint may be saved. A prepared loader that was
trained on reaches one when it is asked for the next batch. All ranks pass the same points, and save at the same one:
at a number of steps, or where `PointAgreement` says. There the training waits only until its state is copied.

The checkpoint of a point in the middle of an epoch is resumed by running the epoch again: its loaders leave out what
was done, and when the first of them delivers a batch, the random generators are what they were.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn

import torch.distributed as dist
from torch.utils.data import IterableDataset

from notebook_accel import events, rank_local
from notebook_accel.config import durations, remote_folders
from notebook_accel.errors import ConfigurationError, PreemptedError
from notebook_accel.events import CheckpointSaved, TrainingStarted
from notebook_accel.events.control import CHECKPOINT
from notebook_accel.events.emit import PREEMPTED_BY, TRAINING_STEP, ControlledLoop, emit, emit_now
from notebook_accel.train.accelerator import resuming
from notebook_accel.train.accelerator.point_agreement import PointAgreement
from notebook_accel.train.checkpoints import background, remote_path
from notebook_accel.train.checkpoints.all_ranks import GatheredTexts, alone
from notebook_accel.train.checkpoints.background import BackgroundSaver, report
from notebook_accel.train.checkpoints.checkpoint import Checkpoints
from notebook_accel.train.checkpoints.contents import Contents
from notebook_accel.train.checkpoints.layouts.layout import SaveOptions
from notebook_accel.train.checkpoints.manifest import Place
from notebook_accel.train.checkpoints.parts import HostCopies
from notebook_accel.train.checkpoints.remote_path import AnyPath
from notebook_accel.train.data.dispatching_loader import DataLoaderDispatcher
from notebook_accel.train.data.loader import PreparedLoader
from notebook_accel.train.ranks import random_states
from notebook_accel.train.ranks.environment import Environment
from notebook_accel.train.ranks.gradient_state import GradientState
from notebook_accel.train.ranks.rank_messages import RankMessages
from notebook_accel.train.ranks.state import PartialState
from notebook_accel.train.ranks.step_observers import ReportedBar
from notebook_accel.train.steps import checks

_EVERY = "it is time"
_NO_FOLDER = "the launch has no folder for checkpoints: pass checkpoint="


@dataclass(frozen=True)
class Run:
    """What the loop needs of its Accelerator."""

    contents: Callable[[], Contents]
    checkpoints: Checkpoints
    set_step: Callable[[int], None]
    """Sets `Accelerator.step`."""
    even_batches: bool
    """Whether all ranks have the same number of batches."""


class PlainLoop:
    """The loop of a launch without a folder for checkpoints, which only counts; see `Accelerator.epochs`.

    Args:
        count: The number of epochs.
    """

    refusals: Mapping[str, str] = {CHECKPOINT: _NO_FOLDER}

    def __init__(self, count: int) -> None:
        self.count = count
        self._epoch = 0
        self._is_last = False
        """Whether the loop ends after this epoch."""

    def epochs(self) -> Iterator[int]:
        """Yields the epochs that are left, up to the last one, or the one after which the user ends the loop."""
        bar = ReportedBar("epoch", "epochs", self.count, self._epoch)
        with _controlled(self), contextlib.closing(bar):
            for epoch in range(self._epoch, self.count):
                self._epoch = epoch
                bar.report()
                yield epoch
                self._end_epoch(epoch)
                bar.done += 1
                if self._is_last:
                    return

    def _end_epoch(self, epoch: int) -> None:
        """Called when an epoch is over."""

    # For the controls

    def request_checkpoint(self, then: Callable[[str, str], object]) -> None:
        then("", _NO_FOLDER)

    def end_after_epoch(self) -> str:
        """Ends the loop after the current epoch. Returns a description of it, such as `epoch 3 of 10`."""
        self._is_last = True
        return f"epoch {self._epoch + 1} of {self.count}"

    def must_run(self) -> bool:
        return False


class EpochLoop(PlainLoop):
    """The loop that saves checkpoints; see `Accelerator.epochs`.

    Args:
        run: The Accelerator's parts.
        count: The number of epochs.
        settings: Those of the launch.

    Attributes:
        trained: Whether there was a backward pass since the last point.
    """

    refusals: Mapping[str, str] = {}

    def __init__(self, run: Run, count: int, settings: Environment) -> None:
        super().__init__(count)
        self._run = run
        self._settings = settings
        self._state = PartialState()
        self._is_main = self._state.is_main_process
        self._gradients = GradientState()
        self._space = rank_local.space()
        self.trained = False
        self._step = 0
        every = settings.checkpoint_every
        self._every_steps = int(every) if every.isdecimal() else 0
        self._every_seconds = math.inf if self._every_steps else durations.seconds(every) or math.inf
        self._next_step: float = math.inf
        self._next_time = math.inf
        self._saved = 0, 0
        """The epoch and the step of the newest checkpoint."""
        self._stop_at = settings.stop_at
        self._warned_slow = False
        self._requested: list[Callable[[str, str], object]] = []
        """What to call once the next checkpoint is written."""

    def epochs(self) -> Iterator[int]:
        """Yields the epochs that are left, and saves checkpoints between them."""
        contents = self._run.contents()
        checks.unsaved(contents, has_hooks=self._run.checkpoints.has_hooks, even_batches=self._run.even_batches)
        folder = remote_path.parse(remote_folders.absolute(self._settings.checkpoint_dir))
        background.prepare(folder)
        self._refuse_tpu()
        with background.hold(folder, self._settings.job) as hold:
            yield from self._epochs_of(folder, contents, hold)

    def _epochs_of(self, folder: AnyPath, contents: Contents, hold: contextlib.ExitStack) -> Iterator[int]:
        """The same as `epochs`, while this training has locked its folder."""
        found = resuming.newest(folder, self._settings)
        self._space[TRAINING_STEP] = self._step  # torch makes a step to load the shards of an optimizer
        if found is None:
            resuming.begin_epoch(contents, self._gradients)
        else:
            self._resume(found, contents)
        group = _group_for_shards(self._state, contents)
        self._options = SaveOptions(writes=self._run.checkpoints.writes, group=group)
        self._messages = RankMessages() if self._state.use_distributed else None
        gather = GatheredTexts(self._messages).gather if self._messages else alone
        self._saver = BackgroundSaver(folder, self._settings.checkpoint_keep, gather, found)
        self._copies = HostCopies()
        self._agreement = PointAgreement(self._messages)
        if self._messages:
            self._messages.start()
        self._schedule()
        self._gradients.observers.add(self)
        self._space |= {TRAINING_STEP: self._step, PREEMPTED_BY: ""}
        if self._state.is_main_process:
            emit(TrainingStarted(self._step))
            if found is not None:
                emit(CheckpointSaved(self._step))
        restore_handler = _catch_sigterm(self._space)
        try:
            yield from super().epochs()
            self._save()
            self._finish()
            self._report_unsaved_end()
            background.release(folder, hold)
        except BaseException:  # also `GeneratorExit`: the user's code has raised, or has left the loop
            self._saver.wait_briefly()
            if self._saver.is_busy:
                hold.pop_all()  # then the end of this process releases the folder
            raise
        finally:
            # After an error, no other rank is waited for any longer: it may be gone.
            background.remove_copies(folder)
            self._gradients.observers.remove(self)
            self._space.pop(PREEMPTED_BY, None)
            restore_handler()

    def _resume(self, found: AnyPath, contents: Contents) -> None:
        place, step = resuming.load(found, contents, self._run.checkpoints, self._state)
        self._run.set_step(step)
        self._epoch, self._step = self._saved = place.epoch, place.step
        report(resuming.describe(found, place, self.count, self._settings, self._state))

    # Points

    def after_backward(self, has_ended: bool) -> None:
        self.trained = self.trained or has_ended

    def batches(self, loader: Any, batches: Iterator[Any]) -> Iterator[Any]:
        """Yields the batches of a prepared loader; its requests for another batch are points if it was trained on."""
        cursor = loader.cursor
        outer, self.trained = self.trained, False
        trained_in: int | None = None
        """The epoch of the loop in which it was last trained on: an iterator that is kept is closed in a later one."""
        try:
            for batch in batches:
                cursor.done += 1
                yield batch
                if self.trained:
                    self.trained, trained_in = False, self._epoch
                    self._pass_step(loader)
        finally:
            if self.trained:
                trained_in = self._epoch
                self._count_step()
            cursor.passes += trained_in == self._epoch
            cursor.done = 0
            self.trained = outer

    def _count_step(self) -> bool:
        """Counts a batch that was trained on; returns whether a step ended with it."""
        synced = self._gradients.sync_gradients
        self._step += synced
        self._space[TRAINING_STEP] = self._step
        return synced

    def _pass_step(self, loader: Any) -> None:
        synced = self._count_step()
        if not self._run.even_batches:
            return
        # Most steps do no more than this: code that is read from memory again costs them more than it computes.
        if self._agreement.advance() or self._step + 1 >= self._next_step:
            self._pass_step_that_matters(loader, synced=synced)
        if self._space[PREEMPTED_BY] or self._stop_at is not None or time.monotonic() >= self._next_time:
            self._request()

    def _pass_step_that_matters(self, loader: Any, *, synced: bool) -> None:
        """Saves after this step if it is due, or prepares to do so after the next."""
        # Not after the first batch, before which it was unknown that the generators are needed; and not after the last,
        # since the end of the epoch is close, or another loader of it.
        may_save = synced and loader.cursor.done > 1 and not loader.end_of_dataloader
        if may_save and self._is_due():
            self._save()
        self._keep_generators(loader)

    def _end_epoch(self, epoch: int) -> None:
        if self.trained:  # on the last batch that was taken from an iterator that is kept
            self.trained = False
            self._count_step()
        if self._step == 0 and epoch == 0:
            report(
                "no step of this epoch was counted, so checkpoints are saved only at the end of epochs: iterate over a "
                "prepared loader, and call accelerator.backward(loss)"
            )
        self._epoch = epoch + 1
        resuming.begin_epoch(self._run.contents(), self._gradients)
        self._agreement.advance()
        if self._is_due():
            self._save()
        self._request()

    def _is_due(self) -> bool:
        return self._step >= self._next_step or bool(self._agreement.reason)

    def _keep_generators(self, loader: PreparedLoader) -> None:
        """Keeps the random states of this moment, before another batch is read, if the next point may be saved."""
        if self._step + 1 < self._next_step and not self._agreement.is_next:
            return
        base = loader.base_dataloader
        reads_here = not (
            base.num_workers or loader.use_stateful_dataloader or isinstance(loader, DataLoaderDispatcher)
        )
        if reads_here and not isinstance(base.dataset, IterableDataset):
            loader.cursor.ahead = random_states.capture(self._state.device)

    def _request(self) -> None:
        """Requests a point at which to save, if a checkpoint is due or the training has to end."""
        if preempted_by := self._space[PREEMPTED_BY]:
            self._agreement.request(preempted_by)
        elif self._stop_at is not None and self._is_main and time.time() >= self._stop_at:
            self._agreement.request("its time limit")
        if time.monotonic() >= self._next_time and not self._saver.is_busy:
            self._next_time = math.inf
            self._agreement.request(_EVERY)

    # For the controls

    def request_checkpoint(self, then: Callable[[str, str], object]) -> None:
        """Saves a checkpoint after the next step but one, since the generators have to be kept before that."""
        self._requested.append(then)
        self._next_step = min(self._next_step, self._step + 2)

    def must_run(self) -> bool:
        """Whether the training has to save a checkpoint and end."""
        is_over = self._stop_at is not None and time.time() >= self._stop_at
        return is_over or bool(self._space.get(PREEMPTED_BY))

    # Saving

    def _save(self) -> None:
        if self._saver.is_busy and self._every_steps and not self._warned_slow:
            self._warned_slow = True
            report("a checkpoint takes longer to write than the steps from one to the next: the training waits for it")
        requested, self._requested = self._requested, []
        if (self._epoch, self._step) != self._saved:
            contents = self._run.contents()
            weights = contents.weights()
            self._saver.wait()  # for what it writes from
            with events.saving():
                parts = self._copies.of(contents.parts(weights, self._options))
            place = Place(self._epoch, self._step, self._state.num_processes)
            self._saver.start(parts, place, functools.partial(self._on_written, self._step, requested))
            self._saved = self._epoch, self._step
        elif requested:
            self._saver.wait()
            _reply(requested, str(self._saver.newest or ""), "" if self._saver.newest else "none could be written")
        reason = self._agreement.reason
        self._agreement.settle()
        self._schedule()
        if reason not in ("", _EVERY):
            self._end_early(reason)

    def _on_written(self, step: int, requested: Sequence[Callable[[str, str], object]], path: str, error: str) -> None:
        """Reports that a checkpoint was or wasn't written. Called on the thread that writes."""
        if path and self._state.is_main_process:
            emit_now(CheckpointSaved(step))  # the job can be resumed from it, even if this process dies now
        _reply(requested, path, error)

    def _finish(self) -> None:
        self._saver.wait()
        self._agreement.close()
        if self._messages:
            self._messages.close()

    def _report_unsaved_end(self) -> None:
        newest = self._saver.newest
        if newest is None or newest.name != background.name(self._step):
            again = "train from the beginning" if newest is None else f"repeat the steps after {newest.name}"
            report(
                "WARNING: the training is complete, but the checkpoint of its end could not be written, so the same "
                f"launch would {again}. To keep the result, return or save the model after the loop"
            )

    def _end_early(self, reason: str) -> NoReturn:
        self._finish()
        ended = f"{reason} ended the training after step {self._step}"
        newest = self._saver.newest
        if newest is None:
            raise PreemptedError(f"{ended}, and no checkpoint could be written")
        if newest.name != background.name(self._step):
            ended += ", whose checkpoint could not be written"
            raise PreemptedError(
                f"{ended}. To continue from the previous checkpoint, {newest}, make the same launch again"
            )
        raise PreemptedError(
            f"{ended}. {newest} has its state: to continue from there, make the same launch again, or, in a notebook, "
            "run %accelerate resume"
        )

    def _schedule(self) -> None:
        """Sets when the next checkpoint is due."""
        self._next_step = self._next_time = math.inf
        if self._every_steps:
            self._next_step = (self._step // self._every_steps + 1) * self._every_steps
        elif self._is_main:  # requests it of the others
            self._next_time = time.monotonic() + self._every_seconds

    def _refuse_tpu(self) -> None:
        if self._state.use_distributed and self._state.backend == "xla":
            raise ConfigurationError(
                "checkpoint= does not work yet with several ranks on a TPU: leave it out, and call "
                "accelerator.save_state and load_state"
            )


def _reply(requested: Sequence[Callable[[str, str], object]], path: str, error: str) -> None:
    for then in requested:
        then(path, error)


def _group_for_shards(state: PartialState, contents: Contents) -> Any:
    """A process group for the thread that writes shards; `None` if it needs none. All ranks call it."""
    if not (state.use_distributed and contents.layout.writes_together):
        return None
    return dist.new_group(backend="gloo")


@contextlib.contextmanager
def _controlled(loop: ControlledLoop) -> Iterator[None]:
    """Within the block, the controls act on this loop."""
    control = events.step_control()
    if control is None:
        yield
        return
    outer, control.loop = control.loop, loop
    control.refresh()
    try:
        yield
    finally:
        control.loop = outer
        control.refresh()


def _catch_sigterm(space: MutableMapping[str, Any]) -> Callable[[], None]:
    """Makes SIGTERM set `PREEMPTED_BY` in the rank's space instead of ending the process. Returns what undoes that.

    Keeps a handler that the user has installed. Does nothing outside the main thread, which gets all signals.
    """
    on_main_thread = threading.current_thread() is threading.main_thread()
    if not on_main_thread or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        return lambda: None
    own = os.getpid()

    def on_terminate(signum: int, frame: FrameType | None) -> None:
        del frame
        if os.getpid() == own:
            space[PREEMPTED_BY] = "SIGTERM"
        else:  # a child that the user's code has forked
            signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)

    signal.signal(signal.SIGTERM, on_terminate)

    def restore() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    return restore
