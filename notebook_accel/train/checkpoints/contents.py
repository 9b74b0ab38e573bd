"""The contents of a checkpoint, file by file.

model[_i].safetensors, optimizer[_i].bin    or shards, as the strategy has it: see layouts/
scheduler[_i].bin  scaler.pt  tunables.pkl  custom_checkpoint_{i}.pkl
dl_state_dict[_i].bin, dl_state_dict[_i]_rank{r}.bin    where each rank is in its loaders; rank 0 first
random_states_{r}.pkl                       the generators of rank r, and the step; the last file of the rank's part
gradients[_i]_rank{r}.bin                   if saved in the middle of an accumulation
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from notebook_accel.errors import CheckpointError
from notebook_accel.rank_spans import counted
from notebook_accel.train.checkpoints import layouts
from notebook_accel.train.checkpoints.layouts.layout import LaidOut, Layout, LoadOptions, SaveOptions, State
from notebook_accel.train.checkpoints.parts import (
    GRADIENTS_NAME,
    LOADER_NAME,
    RNG_STATE_NAME,
    SCALER_NAME,
    SCHEDULER_NAME,
    TUNABLES_NAME,
    Part,
    file_name,
    safe_part,
)
from notebook_accel.train.checkpoints.serialization import load
from notebook_accel.train.ranks import random_states
from notebook_accel.train.ranks.logging import get_logger
from notebook_accel.train.ranks.state import PartialState

_log = get_logger(__name__)


@dataclass
class Contents:
    """The parts of a run that a checkpoint contains."""

    strategy: LaidOut
    models: list[nn.Module]
    """As `prepare` returned them, without a compile wrapper."""
    optimizers: list[Optimizer]
    """Torch's own."""
    schedulers: list[Any]
    loaders: list[Any]
    """Prepared ones."""
    scaler: Any = None
    tunables: Any = None
    """The values that can be tuned."""
    custom: list[Any] | None = field(default_factory=list)
    """The user's own objects with `state_dict` and `load_state_dict`; `None` if the user's code saves them itself."""
    step: int = 0
    """`Accelerator.step`: the number of batches since the accumulation last started."""
    pending: bool = False
    """Whether the checkpoint falls in the middle of an accumulation."""

    @property
    def layout(self) -> Layout:
        """How the states of the models and optimizers lie in the files."""
        return layouts.of(self.strategy)

    def weights(self) -> list[State]:
        """The weights that save hooks can see and remove; all ranks call it."""
        return self.layout.weights(self.models)

    def write(self, folder: Path, state_dicts: Sequence[State], options: SaveOptions) -> None:
        """Writes this rank's part; `state_dicts` are the full weights that the hooks have kept."""
        for part in self.parts(state_dicts, options):
            part.write(folder)

    def parts(self, state_dicts: Sequence[State], options: SaveOptions) -> list[Part]:
        """Collects what this rank writes, the same as `write`."""
        # First, since it may run collectives: after an error on this rank, the others would wait for it.
        parts = self.layout.parts(self.models, state_dicts, self.optimizers, options)
        state = PartialState()
        for index, loader in enumerate(self.loaders):
            name = file_name(LOADER_NAME, index, rank=state.process_index)
            parts.append(safe_part(loader.state_dict(), name, f"data loader {index}"))
        parts.append(self._random_states(state, options.save))
        if self.pending:
            parts += self._gradients(state)
        return [*parts, *self.common()] if options.writes else parts

    def common(self) -> list[Part]:
        """The parts, apart from the strategy's, that would be equal on all ranks."""
        parts = [
            safe_part(scheduler.state_dict(), file_name(SCHEDULER_NAME, index), f"scheduler {index}")
            for index, scheduler in enumerate(self.schedulers)
        ]
        if self.scaler is not None:
            parts.append(safe_part(self.scaler.state_dict(), SCALER_NAME, "the gradient scaler"))
        if self.tunables:
            parts.append(safe_part(self.tunables.state_dict(), TUNABLES_NAME, "the tunable values"))
        return parts + [custom_part(custom, index) for index, custom in enumerate(self.custom or ())]

    def _random_states(self, state: PartialState, save: str) -> Part:
        facts = {"step": self.step, "num_processes": state.num_processes, "save": save}
        states = {**facts, **random_states.capture(state.device)}
        return safe_part(states, random_states_name(state.process_index), "the random generators")

    def _gradients(self, state: PartialState) -> list[Part]:
        parts = []
        for index, model in enumerate(self.models):
            name = file_name(GRADIENTS_NAME, index, rank=state.process_index, first=False)
            found = {key: each.grad.cpu() for key, each in model.named_parameters() if each.grad is not None}
            if not found or any(hasattr(each, "full_tensor") for each in found.values()):
                _log.warning(
                    "The checkpoint is saved in the middle of an accumulation, but it does not contain the gradients "
                    "so far, because they are spread over the ranks: a resumed run differs slightly. Save when "
                    "accelerator.sync_gradients is true."
                )
                break
            parts.append(safe_part(found, name, "the gradients"))
        return parts

    def read(self, folder: Path, models: Sequence[nn.Module], options: LoadOptions) -> int:
        """Loads everything from a folder; `models` are those that the hooks have kept. Returns the step."""
        self._refuse_other_counts(folder)
        saved = SavedParts(folder)
        self.layout.load(folder, models, self.optimizers, options)
        for index, scheduler in enumerate(self.schedulers):
            path = folder / file_name(SCHEDULER_NAME, index)
            scheduler.load_state_dict(load(path, map_location="cpu", **options.load_kwargs))
        self._read_loaders(folder, has_own=saved.own is not None)
        if self.scaler is not None:
            self._read_scaler(folder)
        if self.tunables is not None and (folder / TUNABLES_NAME).is_file():
            self.tunables.load_state_dict(load(folder / TUNABLES_NAME, map_location="cpu"))
        for index, custom in enumerate(self.custom or ()):
            read_custom(custom, folder, index)
        self._read_gradients(folder, saved)
        saved.warn_of_missing()
        # Last, since loading the other parts may have drawn from the generators.
        return saved.restore_generators()

    def _read_loaders(self, folder: Path, *, has_own: bool) -> None:
        rank = PartialState().process_index
        for index, loader in enumerate(self.loaders):
            own = folder / file_name(LOADER_NAME, index, rank=rank)
            path = own if has_own and own.is_file() else folder / file_name(LOADER_NAME, index)
            if path.is_file():
                loader.load_state_dict(load(path, map_location="cpu"))

    def _read_scaler(self, folder: Path) -> None:
        if (folder / SCALER_NAME).is_file():
            self.scaler.load_state_dict(load(folder / SCALER_NAME, map_location="cpu"))
        else:
            _log.warning("%s was saved without a gradient scaler: this one starts from scratch.", folder)

    def _read_gradients(self, folder: Path, saved: SavedParts) -> None:
        state = PartialState()
        if not any(folder.glob(f"{GRADIENTS_NAME}*_rank*.bin")):
            return
        if saved.missing or saved.ranks != state.num_processes:
            _log.warning(
                "%s was saved by %s in the middle of an accumulation; its gradients are dropped on %s.",
                folder, counted(saved.ranks - len(saved.missing)), counted(state.num_processes),
            )  # fmt: skip
            return
        for index, model in enumerate(self.models):
            own = folder / file_name(GRADIENTS_NAME, index, rank=state.process_index, first=False)
            if own.is_file():
                gradients = load(own, map_location=state.device)
                for name, parameter in model.named_parameters():
                    parameter.grad = gradients.get(name)

    def _refuse_other_counts(self, folder: Path) -> None:
        missing = [
            name
            for name in (file_name(SCHEDULER_NAME, index) for index in range(len(self.schedulers)))
            if not (folder / name).is_file()
        ]
        if missing:
            raise CheckpointError(
                f"{folder} has no {', '.join(missing)}: {len(self.schedulers)} schedulers are prepared here, more than "
                "when it was saved. Prepare the same ones, or leave the scheduler out of prepare."
            )
        customs = [path for path in folder.iterdir() if re.fullmatch(r"custom_checkpoint_\d+\.pkl", path.name)]
        if self.custom is not None and len(customs) != len(self.custom):
            raise CheckpointError(
                f"{folder} holds the states of {len(customs)} registered objects, but this run has registered "
                f"{len(self.custom)}. Call register_for_checkpointing with the same ones, in the same order."
            )


def custom_part(custom: Any, index: int) -> Part:
    """The state of an object of the user's."""
    owner = f"{type(custom).__name__} (registered object {index})"
    return safe_part(custom.state_dict(), f"custom_checkpoint_{index}.pkl", owner)


def read_custom(custom: Any, folder: Path, index: int) -> None:
    """Loads the state of an object of the user's."""
    custom.load_state_dict(load(folder / f"custom_checkpoint_{index}.pkl", map_location="cpu"))


def random_states_name(rank: int | str) -> str:
    """The last file that a rank writes of its part."""
    return f"{RNG_STATE_NAME}_{rank}.pkl"


def read_random_states(folder: Path) -> int:
    """Sets this rank's random generators to their states in a checkpoint; returns the step."""
    return SavedParts(folder).restore_generators()


class SavedParts:
    """Whose parts a checkpoint has. One that a rank added to an earlier checkpoint in the same folder doesn't count.

    Args:
        folder: The checkpoint.

    Attributes:
        first: The random states of rank 0; `None` if they aren't there.
        own: Those of this rank.
        ranks: The number of ranks of the run that saved it.
        missing: The numbers of those that should have a part, but have none.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.first = self._read(0)
        self.own = self._read(PartialState().process_index)
        counted = len(list(folder.glob(random_states_name("*"))))
        self.ranks = int((self.own or self.first or {}).get("num_processes", counted))
        # Ranks that save together have all written their parts, though perhaps each to the disk of its own node.
        is_one_by_one = self.first is not None and self.first.get("save")
        self.missing = [rank for rank in range(self.ranks) if is_one_by_one and self._read(rank) is None]

    def _read(self, rank: int) -> dict[str, Any] | None:
        path = self._folder / random_states_name(rank)
        if not path.is_file():
            return None
        states: dict[str, Any] = load(path, map_location="cpu")
        is_of_other_save = rank and self.first is not None and self.first.get("save") != states.get("save")
        return None if is_of_other_save else states

    def warn_of_missing(self) -> None:
        """Warns that some ranks don't resume exactly, on the same number of ranks."""
        if self.missing and self.ranks == PartialState().num_processes:
            _log.warning(
                "%s has no part of rank %s, which did not call save_state, or had ended before its part was written: "
                "its generators and loaders continue from the states of rank 0, with other random numbers.",
                self._folder, ", ".join(map(str, self.missing)),
            )  # fmt: skip

    def restore_generators(self) -> int:
        """Sets this rank's random generators to their states; returns the step."""
        state = PartialState()
        states = self.own or self.first
        if states is None:
            _log.warning("%s has no random states: the generators stay as they are.", self._folder)
            return 0
        if self.own is not None:
            random_states.restore(states, state.device)
        else:
            random_states.derive(states, state.process_index, state.device)
        if self.ranks != state.num_processes:
            _log.info("%s was saved on %d ranks and is loaded on %d.", self._folder, self.ranks, state.num_processes)
        return int(states.get("step", 0))
