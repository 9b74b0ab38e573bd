"""Checkpoints of a whole run: `save_state` and `load_state`.

All ranks call these together, and a failure on one raises on all, so that none waits forever. But where each rank has
all weights, rank 0 saves them without waiting, and other ranks that call add their parts: see `participants.py`. A
checkpoint is written to a hidden folder and then renamed, so that it exists completely or not at all.
"""

from __future__ import annotations

import functools
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from notebook_accel.errors import ConfigurationError
from notebook_accel.events import saving
from notebook_accel.rehearsal_flag import rehearsing
from notebook_accel.train.checkpoints import folders, participants
from notebook_accel.train.checkpoints.all_ranks import AllRanks, alone, others_awaited
from notebook_accel.train.checkpoints.contents import Contents, random_states_name
from notebook_accel.train.checkpoints.folders import StagedFolder
from notebook_accel.train.checkpoints.layouts.layout import LoadOptions, SaveOptions
from notebook_accel.train.checkpoints.serialization import is_writer
from notebook_accel.train.checkpoints.transfer import UploadedFolder
from notebook_accel.train.options.plugins import ProjectConfiguration
from notebook_accel.train.ranks.logging import get_logger
from notebook_accel.train.ranks.state import PartialState

SaveHook = Callable[[list[Any], list[dict[str, torch.Tensor]], str], None]
LoadHook = Callable[[list[Any], str], None]
_log = get_logger(__name__)


class Checkpoints:
    """The checkpoints of one Accelerator: their folders, and the hooks and objects that the user registered.

    Args:
        project: The project configuration. It is read at each call, since users change its `iteration`.

    Raises:
        ConfigurationError: `total_limit` is not valid, or has no effect.
    """

    def __init__(self, project: ProjectConfiguration) -> None:
        self._project = project
        self._save_hooks: OrderedDict[int, SaveHook] = OrderedDict()
        self._load_hooks: OrderedDict[int, LoadHook] = OrderedDict()
        self.custom: list[Any] = []
        """The objects passed to `register_for_checkpointing`."""
        limit = project.total_limit
        if limit is not None and limit < 1:
            raise ConfigurationError(f"total_limit={limit} keeps no checkpoint: pass 1 or more, or leave it out")
        if limit is not None and not project.automatic_checkpoint_naming:
            _log.warning(  # not an error, since many scripts pass it always, and remove old checkpoints themselves
                "total_limit=%d has no effect without automatic_checkpoint_naming=True: checkpoints that you name "
                "yourself are neither counted nor removed.", limit,
            )  # fmt: skip

    def register(self, *objects: Any) -> None:
        """Includes objects of the user in checkpoints.

        Raises:
            ConfigurationError: One of them lacks `state_dict` or `load_state_dict`.
        """
        unfit = [
            f"Item at index {index}, a {type(each).__name__}"
            for index, each in enumerate(objects)
            if not (hasattr(each, "state_dict") and hasattr(each, "load_state_dict"))
        ]
        if unfit:
            raise ConfigurationError(
                "what is registered for checkpointing needs the methods state_dict() and load_state_dict(state), which "
                f"these objects don't have: {'; '.join(unfit)}"
            )
        self.custom.extend(objects)

    def register_save_hook(self, hook: SaveHook) -> RemovableHandle:
        """Makes `save` call `hook(models, weights, folder)` first; weights that it removes are not written."""
        handle = RemovableHandle(self._save_hooks)
        self._save_hooks[handle.id] = hook
        return handle

    def register_load_hook(self, hook: LoadHook) -> RemovableHandle:
        """Makes `load` call `hook(models, folder)` first; models that it removes are not loaded."""
        handle = RemovableHandle(self._load_hooks)
        self._load_hooks[handle.id] = hook
        return handle

    def save(
        self, contents: Contents, output_dir: str | os.PathLike[str] | None = None, safe_serialization: bool = True
    ) -> Path:
        """Writes a checkpoint; all ranks call it, or rank 0 alone if each rank has all weights.

        In the latter case, rank 0 waits for no other rank, and each rank that calls returns when it has added its part.

        Args:
            contents: What to write.
            output_dir: The checkpoint's folder; an existing one is replaced. Not used with automatic naming.
            safe_serialization: Whether unsharded weights are written as safetensors.

        Returns:
            The folder.

        Raises:
            ConfigurationError: The folder is not known, or the contents include something that could not be read back.
            CheckpointError: Saving failed on another rank.
        """
        if rehearsing():
            return Path(output_dir or os.devnull)
        with saving():
            target = self._save(contents, output_dir, safe_serialization)
        if self._project.automatic_checkpoint_naming:
            self._project.iteration += 1
        _log.info("Saved the state of the run to %s.", target)
        return target

    def _save(self, contents: Contents, output_dir: str | os.PathLike[str] | None, safe_serialization: bool) -> Path:
        write = functools.partial(self._write, contents, safe_serialization)
        if self._waits_for_all(contents):
            ranks = AllRanks()
            with others_awaited("save_state"):
                target, have_hooks = self._begin(ranks, output_dir)
            write = functools.partial(write, together=have_hooks and contents.strategy.gathers_weights)
            write_folder(ranks, lambda: self._staged(target), write)
            return target
        if PartialState().is_main_process:
            return self._save_alone(write, output_dir)
        return self._add_part(write, output_dir)

    def load(
        self,
        contents: Contents,
        input_dir: str | os.PathLike[str] | None = None,
        load_kwargs: dict[str, Any] | None = None,
        strict: bool = True,
        map_location: Any = None,
    ) -> int:
        """Loads all contents from a checkpoint; all ranks call it.

        Args:
            contents: What to load.
            input_dir: The checkpoint's folder; `None` with automatic naming: the newest.
            load_kwargs: More arguments of `torch.load`, for optimizers and schedulers.
            strict: Whether the weights must be exactly the model's.
            map_location: Where optimizer states are first loaded: `cpu`, the default, or `on_device`.

        Returns:
            The step at which it was saved.

        Raises:
            ConfigurationError: There is no such folder.
            CheckpointError: The checkpoint has other contents, or reading failed on another rank.
        """
        if map_location not in (None, "cpu", "on_device"):
            raise TypeError(f"map_location={map_location!r} must be None, 'cpu' or 'on_device'")
        location = PartialState().device if map_location == "on_device" else "cpu"
        options = LoadOptions(strict, location, load_kwargs or {})
        ranks = AllRanks()

        def find() -> str:
            source = self._source(input_dir)
            if ranks.is_first_on_node:
                folders.recover(source)
            return str(source)

        folder = _agreed_folder(ranks.collect("find the checkpoint", find))
        ranks.run("find the checkpoint", lambda: _refuse_missing(folder))
        step = ranks.run("read the checkpoint", lambda: self._read(contents, folder, options))
        if self._project.automatic_checkpoint_naming:
            existing = folders.numbered(self._folder())
            if any(path.resolve() == folder for _, path in existing):
                self._project.iteration = existing[-1][0] + 1  # not the loaded one's: later ones may exist
        _log.info("Loaded the state of the run from %s.", folder)
        return step

    @property
    def has_hooks(self) -> bool:
        return bool(self._save_hooks or self._load_hooks)

    @property
    def writes(self) -> bool:
        """Whether this rank writes the files that would be equal on all ranks."""
        return is_writer(self._project.save_on_each_node)

    def _waits_for_all(self, contents: Contents) -> bool:
        """Whether no rank can save without the others."""
        state, strategy = PartialState(), contents.strategy
        needs_all = strategy.gathers_weights or contents.layout.writes_together or self._project.save_on_each_node
        return needs_all or not state.use_distributed or state.backend == "xla"

    def _begin(self, ranks: AllRanks, output_dir: str | os.PathLike[str] | None) -> tuple[Path, bool]:
        """Prepares the folder of a new checkpoint; returns it, and whether a rank has save hooks."""

        def choose() -> str:
            target = self._name(output_dir)
            if self._project.automatic_checkpoint_naming:
                _refuse_existing(target)
            begin(ranks, self._staged(target))
            return f"{bool(self._save_hooks):d}{target}"

        chosen = ranks.collect("prepare the folder", choose)
        return _agreed_folder([text[1:] for text in chosen]), any(text.startswith("1") for text in chosen)

    def _staged(self, target: Path) -> StagedFolder:
        return StagedFolder(target, keep=self._project.total_limit)

    def _save_alone(self, write: Callable[..., None], output_dir: str | os.PathLike[str] | None) -> Path:
        """Saves all but the parts of the other ranks, on rank 0."""
        ranks = AllRanks(alone)
        with participants.announced(self._given(output_dir)) as save:
            target, _ = self._begin(ranks, output_dir)
            save.name(target)
            write_folder(ranks, lambda: self._staged(target), functools.partial(write, save=save.id))
        return target

    def _add_part(self, write: Callable[..., None], output_dir: str | os.PathLike[str] | None) -> Path:
        """Adds this rank's part to the checkpoint that rank 0 saves."""
        state = PartialState()
        is_beside_first = state.process_index == state.local_process_index
        own, given = self._name(output_dir), self._given(output_dir)
        save = participants.find(given, same_paths=is_beside_first)
        target = save.folder()
        if not is_beside_first:  # where the folder may have another path
            target = own.with_name(target.name)
        elif save.given != given:
            _warn_of_other_folder(own, target)
        staged = StagedFolder(target, f"rank{state.process_index}")
        staged.discard()
        try:
            staged.path.mkdir(parents=True)
            write(staged.path, save=save.id)
            save.wait()
            if not is_beside_first:
                target.mkdir(exist_ok=True)
            if not staged.merge(last=random_states_name(state.process_index)):
                _log.warning(
                    "Rank %d could not add its random states to %s: the folder was moved or removed before. Call "
                    "accelerator.wait_for_everyone() after save_state, and then move it.", state.process_index, target,
                    main_process_only=False,
                )  # fmt: skip
        finally:
            staged.discard()
        return target

    def _given(self, output_dir: str | os.PathLike[str] | None) -> str:
        """The folder that this rank was given, if it counts."""
        return "" if output_dir is None or self._project.automatic_checkpoint_naming else os.fspath(output_dir)

    def _write(
        self, contents: Contents, safe_serialization: bool, folder: Path, save: str = "", together: bool = False
    ) -> None:
        weights = contents.weights()

        def run_hooks() -> None:
            for hook in list(self._save_hooks.values()):
                hook(contents.models, weights, str(folder))

        _run_hooks("run the save hooks", run_hooks, together)
        contents.write(folder, weights, SaveOptions(safe_serialization, self.writes, save=save))

    def _read(self, contents: Contents, folder: Path, options: LoadOptions) -> int:
        models = list(contents.models)

        def run_hooks() -> None:
            for hook in list(self._load_hooks.values()):
                hook(models, str(folder))

        _run_hooks("run the load hooks", run_hooks, contents.strategy.gathers_weights)
        return contents.read(folder, models, options)

    def _folder(self) -> Path:
        """The folder of automatically named checkpoints."""
        if self._project.project_dir is None:
            raise ConfigurationError(
                "automatic_checkpoint_naming needs a folder to count in: pass project_dir to the Accelerator or the "
                "ProjectConfiguration"
            )
        return Path(self._project.project_dir).expanduser() / "checkpoints"

    def _name(self, output_dir: str | os.PathLike[str] | None) -> Path:
        if not self._project.automatic_checkpoint_naming:
            if output_dir is None:
                raise ConfigurationError(
                    "save_state() needs a folder: pass output_dir, or a ProjectConfiguration with "
                    "automatic_checkpoint_naming=True"
                )
            return Path(output_dir).expanduser()
        if output_dir is not None:
            _log.warning(  # not an error, since Accelerate saves, and the first save may come after hours
                "output_dir=%r has no effect with automatic_checkpoint_naming=True, which writes to %s: leave one of "
                "them out.", str(output_dir), self._folder(),
            )  # fmt: skip
        return self._folder() / f"checkpoint_{self._project.iteration}"

    def _source(self, input_dir: str | os.PathLike[str] | None) -> Path:
        if input_dir is None:
            if not self._project.automatic_checkpoint_naming:
                raise ConfigurationError(
                    "load_state() needs a folder: pass input_dir, or a ProjectConfiguration with "
                    "automatic_checkpoint_naming=True"
                )
            found = folders.numbered(self._folder())
            if not found:
                raise ConfigurationError(f"there is no checkpoint in {self._folder()} yet")
            return found[-1][1].resolve()
        return Path(input_dir).expanduser().resolve()


Unfinished = StagedFolder | UploadedFolder
"""A checkpoint's folder that is being written."""


def save_folder(ranks: AllRanks, make: Callable[[], Unfinished], write: Callable[[Path], None]) -> None:
    """Writes a checkpoint's folder atomically; called on all ranks.

    Args:
        ranks: How they wait for each other.
        make: Makes the folder that is being written.
        write: Writes this rank's files to the folder that it is given.
    """
    ranks.run("prepare the folder", lambda: begin(ranks, make()))
    write_folder(ranks, make, write)


def begin(ranks: AllRanks, unfinished: Unfinished) -> None:
    """Prepares a folder on the first rank of each node."""
    if ranks.is_first_on_node:
        unfinished.begin()


def write_folder(ranks: AllRanks, make: Callable[[], Unfinished], write: Callable[[Path], None]) -> None:
    """The same as `save_folder`, for a folder that is prepared."""
    try:
        written = ranks.collect("write the checkpoint", lambda: make().write(write))
    except Exception:
        ranks.run_on_each_disk("remove the unfinished checkpoint", lambda: make().discard())
        raise
    ranks.run_on_each_disk("finish the checkpoint", lambda: make().finish(written))


def _run_hooks(task: str, run: Callable[[], None], together: bool) -> None:
    """Runs hooks of the user; where ranks communicate afterwards, none waits there for one whose hook has failed."""
    if together:
        AllRanks().run(task, run)
    else:
        run()


def _agreed_folder(named: Sequence[str]) -> Path:
    """The folder that the first rank of this node named, since names that contain the time differ between ranks.

    Args:
        named: The folder that each rank named; of a rank that waits for no other, its own alone.
    """
    state = PartialState()
    first = state.process_index - state.local_process_index
    own, chosen = Path(named[state.process_index]), Path(named[first])
    if chosen != own:
        _warn_of_other_folder(own, chosen)
    return chosen


def _warn_of_other_folder(own: Path, chosen: Path) -> None:
    state = PartialState()
    _log.warning(
        "Rank %d named the folder %s, but rank %d, the first of its machine, named it %s: the latter is used.",
        state.process_index, own, state.process_index - state.local_process_index, chosen, main_process_only=False,
    )  # fmt: skip


def _refuse_existing(numbered: Path) -> None:
    if numbered.exists():
        raise ConfigurationError(
            f"{numbered} already exists: load it to continue from it (load_state() loads the newest), set "
            "accelerator.project_configuration.iteration to the first unused number, or choose another project_dir"
        )


def _refuse_missing(folder: Path) -> None:
    if not folder.is_dir():
        raise ConfigurationError(f"there is no checkpoint at {folder}: no such folder")
