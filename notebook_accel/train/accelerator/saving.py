"""The methods of `Accelerator` that save the results of a run: checkpoints, weights, metrics, profiles."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from numbers import Integral
from pathlib import Path
from typing import Any

import torch
from torch import nn

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.accelerator.base import AcceleratorBase
from notebook_accel.train.accelerator.epoch_loop import EpochLoop, PlainLoop, Run
from notebook_accel.train.checkpoints import serialization, weights
from notebook_accel.train.checkpoints.contents import Contents
from notebook_accel.train.models import compiling
from notebook_accel.train.options.plugins import ProfileKwargs
from notebook_accel.train.ranks import environment
from notebook_accel.train.ranks.state import AcceleratorState
from notebook_accel.train.steps.profiling import Profiled
from notebook_accel.train.trackers import GeneralTracker


class Saving(AcceleratorBase):
    """Saves checkpoints and weights, and logs to trackers."""

    # Checkpoints

    def save_state(
        self, output_dir: str | os.PathLike[str] | None = None, safe_serialization: bool = True, **kwargs: Any
    ) -> Path:
        """Saves the state of the run to a folder; all ranks call it.

        If each rank has the complete weights, as with DDP, rank 0 doesn't wait for the others: each of them adds its
        random states and its positions in the loaders to the checkpoint when it calls. So rank 0 may also call it
        alone, as scripts for Accelerate do, and `load_state` then names the ranks whose states are missing. Before you
        copy the folder elsewhere, call `wait_for_everyone`.

        Args:
            output_dir: The folder; not used with `ProjectConfiguration(automatic_checkpoint_naming=True)`.
            safe_serialization: Whether unsharded weights are written as safetensors.
            kwargs: Rejected; there are no others.

        Returns:
            The folder.

        Raises:
            ConfigurationError: No folder is given, it is a file, or a state could not be loaded without running code.
            CheckpointError: Another rank could not save its part.
            OSError: A file could not be written.
        """
        _refuse_unknown("save_state", kwargs)
        return self._checkpoints.save(self._contents(), output_dir, safe_serialization)

    def load_state(
        self,
        input_dir: str | os.PathLike[str] | None = None,
        load_kwargs: dict[str, Any] | None = None,
        *,
        strict: bool = True,
        map_location: Any = None,
        **kwargs: Any,
    ) -> None:
        """Restores the state of the run from a folder; all ranks call it, after `prepare`.

        Args:
            input_dir: The folder; `None` with automatic naming: the newest checkpoint.
            load_kwargs: More arguments of `torch.load`, for optimizers and schedulers.
            strict: Whether the weights must be exactly the model's.
            map_location: Where optimizer states are loaded first: `cpu`, the default, or `on_device`.
            kwargs: Rejected; there are no others.

        Raises:
            ConfigurationError: There is no checkpoint, or loading a file could run code.
            CheckpointError: A file is missing or does not fit the prepared objects, or another rank could not load.
        """
        _refuse_unknown("load_state", kwargs)
        step = self._checkpoints.load(self._contents(), input_dir, load_kwargs, strict, map_location)
        self._accumulation.step = step

    def epochs(self, count: int) -> Iterator[int]:
        """Counts the epochs, and saves checkpoints on the way if the launch names a folder for them.

            for epoch in accelerator.epochs(10):
                for inputs, targets in loader:
                    ...

        Without `checkpoint=` in the launch, it counts like `range(count)`. With it, the run's state is saved in the
        background at steps of the prepared loaders, and a launch with the same folder yields the epochs that are left:
        in the first of them, the loaders leave out what was done. `job.end_after_epoch` ends it early. All ranks call
        it, after `prepare`. See docs/resuming.md.

        Args:
            count: The number of epochs.

        Raises:
            ConfigurationError: Something could not be resumed at all; or `count` is not valid.
            CheckpointError: The folder has the checkpoints of another training.
        """
        if not isinstance(count, (int, Integral)) or count < 0:
            raise ConfigurationError(f"epochs({count!r}): give the number of epochs, 0 or more")
        settings = environment.read()
        if not settings.checkpoint_dir:
            return PlainLoop(count).epochs()
        if self._has_looped:
            raise ConfigurationError(
                "checkpoint= saves a single loop over accelerator.epochs(), because the checkpoints of two loops "
                "could not be told apart: use range() for one of them, or make them one loop"
            )
        self._has_looped = True
        run = Run(self._contents, self._checkpoints, self._set_step, self.even_batches)
        return EpochLoop(run, count, settings).epochs()

    def _set_step(self, step: int) -> None:
        self._accumulation.step = step

    def _contents(self) -> Contents:
        return Contents(
            strategy=self.strategy,
            models=[self.strategy.unwrap(compiling.inner(model)) for model in self._models],
            optimizers=[optimizer.optimizer for optimizer in self._optimizers],
            schedulers=list(self._schedulers),
            loaders=list(self._dataloaders),
            scaler=self.scaler,
            tunables=self._tunables,
            custom=self._checkpoints.custom,
            step=self._accumulation.step,
            pending=not self.gradient_state.sync_gradients,
        )

    def register_for_checkpointing(self, *objects: Any) -> None:
        """Includes objects in checkpoints.

        Raises:
            ConfigurationError: One of them has no `state_dict()` or no `load_state_dict(state)`.
        """
        self._checkpoints.register(*objects)

    @property
    def _custom_objects(self) -> list[Any]:
        return self._checkpoints.custom

    def register_save_state_pre_hook(self, hook: Callable[..., None]) -> Any:
        """Makes `save_state` call `hook(models, weights, folder)`; what it removes from `weights` is not written.

        The models are your own, without DDP's wrapper.

        Returns:
            A handle, whose `remove()` unregisters the hook.
        """
        return self._checkpoints.register_save_hook(hook)

    def register_load_state_pre_hook(self, hook: Callable[..., None]) -> Any:
        """Makes `load_state` call `hook(models, folder)`; models that it removes are not loaded.

        The models are your own, without DDP's wrapper.

        Returns:
            A handle, whose `remove()` unregisters the hook.
        """
        return self._checkpoints.register_load_hook(hook)

    # Weights

    @property
    def should_save_model(self) -> bool:
        """Whether this rank writes the files that would be equal on all ranks."""
        each = self.project_configuration.save_on_each_node
        return self.is_local_main_process if each else self.is_main_process

    def get_state_dict(self, model: nn.Module, unwrap: bool = True) -> dict[str, torch.Tensor]:
        """Returns the weights of a prepared model, complete at least on rank 0; all ranks call it.

        Args:
            model: The model.
            unwrap: Whether to use the parameter names of the user's model rather than of the wrapped one.

        Returns:
            Tensors by name, of the shapes that they have in the user's model.
        """
        inner = compiling.inner(model)
        return self.strategy.state_dict(inner) if unwrap else dict(inner.state_dict())

    def save_model(
        self,
        model: nn.Module,
        save_directory: str | os.PathLike[str],
        max_shard_size: int | str = "10GB",
        safe_serialization: bool = True,
    ) -> None:
        """Writes a model's weights into a folder, in files of at most `max_shard_size`, on rank 0.

        All ranks call it, and of weights that are sharded or split, all wait until they are written. If each rank has
        the complete weights, as with DDP, rank 0 may also call it alone, as scripts for Accelerate do; before another
        rank reads the files, call `wait_for_everyone`.

        Args:
            model: The model.
            save_directory: The folder; it is created if it does not exist.
            max_shard_size: A number of bytes, or a text such as `5GB` (10⁹ bytes each) or `5GiB`.
            safe_serialization: Whether to write safetensors rather than torch's pickle.
        """
        state = self.get_state_dict(model)
        if self.should_save_model:
            weights.save_model(state, save_directory, max_shard_size, safe_serialization)
        if self.strategy.gathers_weights:
            self.wait_for_everyone()

    def save(self, obj: Any, f: str | os.PathLike[str], safe_serialization: bool = False) -> None:
        """Writes an object to a file, on rank 0 only; with `save_on_each_node`, on the first rank of each node.

        Args:
            obj: What `torch.save` can write; with `safe_serialization`, a dict of tensors.
            f: The file.
            safe_serialization: Whether to write safetensors.
        """
        serialization.save(obj, f, self.project_configuration.save_on_each_node, safe_serialization)

    # Metrics

    @property
    def log_with(self) -> list[Any]:
        """The trackers that were chosen."""
        return self._tracker_group.log_with

    @property
    def trackers(self) -> list[GeneralTracker]:
        """The trackers that have been started."""
        return self._tracker_group.trackers

    def init_trackers(
        self,
        project_name: str,
        config: dict[str, Any] | None = None,
        init_kwargs: dict[str, Any] | None = None,
    ) -> None:
        """Starts a run with each tracker of `log_with`.

        Args:
            project_name: Its name.
            config: Settings to store with the run.
            init_kwargs: Arguments for each tracker, by the tracker's name.
        """
        self._tracker_group.start(project_name, config, init_kwargs)

    def get_tracker(self, name: str, unwrap: bool = False) -> Any:
        """A started tracker.

        Args:
            name: Its name, such as `"tensorboard"`.
            unwrap: Whether to return the service's own object, such as its run, instead.

        Returns:
            The tracker. On ranks that don't log, an object that accepts every call and does nothing.

        Raises:
            ConfigurationError: There is no tracker of this name, or it has not been started.
        """
        return self._tracker_group.get(name, unwrap)

    def log(self, values: dict[str, Any], step: int | None = None, log_kwargs: dict[str, Any] | None = None) -> None:
        """Logs values to all trackers, and shows them in the notebook.

        Args:
            values: Numbers and texts by name.
            step: The training step.
            log_kwargs: Arguments for each tracker, by the tracker's name.
        """
        self._tracker_group.log(values, step, log_kwargs)

    def profile(self, profile_handler: ProfileKwargs | None = None) -> Profiled:
        """Profiles the block; `with ... as` gives torch's profiler.

        Args:
            profile_handler: The options; `None`: those of `kwargs_handlers`.
        """
        return Profiled(profile_handler or self.profile_handler or ProfileKwargs())

    def end_training(self) -> None:
        """Closes the trackers, and leaves the process group. The next `Accelerator` starts from scratch."""
        self._tracker_group.finish()
        # Not with gloo: a rank that leaves may close connections that still carry data of the last collective, and the
        # others would hang. That group ends with the process.
        if self.state.backend == "nccl":
            self.state.destroy_process_group()
        AcceleratorState._reset_state(reset_partial_state=True)


def _refuse_unknown(function: str, given: dict[str, Any]) -> None:
    if given:
        raise ConfigurationError(f"{function} has no argument {', '.join(given)}")
