"""`Accelerator`: prepares models, optimizers, loaders and schedulers for the ranks and devices they run on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from notebook_accel import events
from notebook_accel.errors import ConfigurationError
from notebook_accel.train import data, step_timing
from notebook_accel.train.accelerator.saving import Saving
from notebook_accel.train.accelerator.training_step import Stepping
from notebook_accel.train.models import batch_size, compiling, precision, prepare_checks
from notebook_accel.train.steps.optimizer import AcceleratedOptimizer
from notebook_accel.train.steps.scheduler import AcceleratedScheduler

T = TypeVar("T")


class Accelerator(Stepping, Saving):
    """Runs a plain PyTorch loop on any number of ranks and on any device.

        accelerator = Accelerator()
        model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = loss_function(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()

    On the ranks of a launch it needs no arguments; outside a launch it uses a single device. Its interface is that of
    Hugging Face Accelerate's class of the same name.

    Args:
        device_placement: Whether `prepare` moves models, and loaders move batches, to the rank's device.
        split_batches: As in `DataLoaderConfiguration`.
        mixed_precision: `no`, `fp16`, `bf16` or `fp8`; `None`: the launch's setting.
        gradient_accumulation_steps: The number of batches over which gradients are accumulated.
        cpu: Whether to use the CPU even if there are accelerators.
        dataloader_config: How loaders share their samples among the ranks.
        deepspeed_plugin: Not available.
        fsdp_plugin: Shards parameters with FSDP2.
        torch_tp_plugin: Splits layers over ranks (tensor parallel).
        megatron_lm_plugin: Not available.
        rng_types: Which random states loaders make equal on all ranks at the start of each epoch; `None`: only the
            generator of their sampler.
        log_with: Trackers, by name or made by the user.
        project_dir: The folder for the run's checkpoints and logs.
        project_config: The same, with more options.
        gradient_accumulation_plugin: Instead of `gradient_accumulation_steps`, with more options.
        step_scheduler_with_optimizer: Whether schedulers step only when their optimizers do.
        kwargs_handlers: Arguments for the objects that it creates: `DistributedDataParallelKwargs`, `GradScalerKwargs`
            and so on.
        dynamo_backend: Compiles models with `torch.compile` and this backend.
        dynamo_plugin: The same, with more options.
        deepspeed_plugins: Not available.
        parallelism_config: Several dimensions together: replicas, shards, layers split over ranks.

    Raises:
        ConfigurationError: Arguments contradict each other, the device, or an existing Accelerator.
        TypeError: There is no such argument; the message says what to write instead.
        HardwareError: The device cannot compute in that precision.
    """

    # Preparing

    def prepare(self, *args: Any, device_placement: Sequence[bool | None] | None = None) -> Any:
        """Makes models, optimizers, loaders and schedulers ready for the ranks.

        Args:
            args: Any number of them, in any order; models together with their optimizers. Other objects, and those that
                are already prepared, are returned unchanged.
            device_placement: For each of them, whether it is moved to the device; `None`: the Accelerator's setting.

        Returns:
            The prepared objects in the same order; a single object itself rather than a tuple.

        Raises:
            ConfigurationError: The objects do not fit together.
        """
        placements = [None] * len(args) if device_placement is None else list(device_placement)
        if len(placements) != len(args):
            raise ConfigurationError(f"device_placement has {len(placements)} entries for {len(args)} objects")
        prepare_checks.refuse_containers(args)
        found = list(args)
        models = [index for index, each in enumerate(args) if isinstance(each, nn.Module)]
        optimizers = [each for each in args if isinstance(each, Optimizer)]
        self._refuse_unrelated_optimizers([args[index] for index in models], optimizers)
        moved = [self._moves_to_device(placements[index]) for index in models]
        prepared = self._prepare_models([args[index] for index in models], moved, optimizers)
        for index, model in zip(models, prepared, strict=True):
            found[index] = model
        for index, each in enumerate(args):
            if isinstance(each, DataLoader):
                found[index] = self.prepare_data_loader(each, placements[index])
            elif isinstance(each, Optimizer):
                found[index] = self._wrap_optimizer(each, placements[index])
        for index, each in enumerate(args):  # last, since schedulers follow prepared optimizers
            if isinstance(each, LRScheduler):
                found[index] = self.prepare_scheduler(each)
        return found[0] if len(found) == 1 else tuple(found)

    def prepare_model(
        self, model: nn.Module, device_placement: bool | None = None, evaluation_mode: bool = False
    ) -> nn.Module:
        """Prepares one model.

        Args:
            model: The model.
            device_placement: Whether it is moved to the device; `None`: the Accelerator's setting.
            evaluation_mode: Whether the model is only evaluated, so that it is neither sharded nor wrapped.
        """
        if not evaluation_mode:
            return self._prepare_models([model], [self._moves_to_device(device_placement)], [])[0]
        inner = self._precision.apply(compiling.inner(model))
        moved = inner.to(self.device) if self._moves_to_device(device_placement) else inner
        return self._compile(moved, model)

    def prepare_data_loader(
        self,
        data_loader: DataLoader[Any],
        device_placement: bool | None = None,
        slice_fn_for_dispatch: Callable[..., Any] | None = None,
    ) -> DataLoader[Any]:
        """Prepares one data loader.

        Args:
            data_loader: The loader.
            device_placement: Whether its batches are moved to the device; `None`: the Accelerator's setting.
            slice_fn_for_dispatch: How rank 0 cuts a batch if it reads for all ranks; see `slice_tensors`.
        """
        config = self.dataloader_config
        prepared = data.prepare_data_loader(
            data_loader,
            self.device,
            split_batches=config.split_batches,
            put_on_device=self._moves_to_device(device_placement),
            rng_types=list(self.rng_types),
            dispatch_batches=config.dispatch_batches,
            even_batches=config.even_batches,
            slice_fn_for_dispatch=slice_fn_for_dispatch,
            use_seedable_sampler=config.use_seedable_sampler,
            data_seed=config.data_seed,
            non_blocking=config.non_blocking,
            use_stateful_dataloader=config.use_stateful_dataloader,
            torch_device_mesh=self.strategy.mesh,
        )
        return _remember(self._dataloaders, prepared)

    def prepare_optimizer(self, optimizer: Optimizer, device_placement: bool | None = None) -> AcceleratedOptimizer:
        """Prepares one optimizer, whose model must already be prepared.

        Raises:
            ConfigurationError: Its parameters do not belong to a prepared model.
        """
        self._refuse_unrelated_optimizers([], [optimizer])
        return self._wrap_optimizer(optimizer, device_placement)

    def prepare_scheduler(self, scheduler: LRScheduler) -> AcceleratedScheduler:
        """Prepares one scheduler, whose optimizer must already be prepared.

        Raises:
            ConfigurationError: Its optimizer is not prepared.
        """
        for known in self._schedulers:
            if scheduler in (known, known.scheduler):
                return known
        own = scheduler.optimizer
        followed = [each for each in self._optimizers if own in (each, each.optimizer)]
        if not followed and self.step_scheduler_with_optimizer:
            raise ConfigurationError(
                "a scheduler was prepared without its optimizer, so it can't know when the optimizer steps: "
                "prepare both in one call, or the optimizer first"
            )
        prepared = AcceleratedScheduler(
            scheduler,
            followed,
            self.step_scheduler_with_optimizer,
            self.split_batches,
            processes=self._data_ranks.size,
        )
        return _remember(self._schedulers, prepared)

    def _prepare_models(
        self, models: Sequence[nn.Module], placements: Sequence[bool], optimizers: Sequence[Optimizer]
    ) -> list[nn.Module]:
        """Prepares the models that are not prepared yet in one call, with the optimizers that hold their parameters."""
        known = [self._known(model) for model in models]
        new = [index for index, model in enumerate(known) if model is None]
        inner = [compiling.inner(models[index]) for index in new]
        to_wrap = [position for position, model in enumerate(inner) if not self.strategy.is_prepared(model)]
        for position in to_wrap:
            if self.use_distributed:
                prepare_checks.refuse_device_map(inner[position])
            self._precision.apply(inner[position])
            if placements[new[position]] and not getattr(inner[position], "hf_device_map", None):
                inner[position] = self.strategy.to_device(inner[position])
        holders = [*(each.optimizer for each in self._optimizers), *(_raw(each) for each in optimizers)]
        if to_wrap:
            wrapped = self.strategy.prepare([inner[position] for position in to_wrap], _distinct(holders))
            for position, model in zip(to_wrap, wrapped, strict=True):
                inner[position] = model
        for index, model in zip(new, inner, strict=True):
            finished = self._compile(model, models[index])
            finished.__dict__["_is_accelerate_prepared"] = True  # other libraries read it
            self._models.append(finished)
            self._watch.add(finished)
            if step_timing.current() is not None:
                step_timing.watch_forward(finished)
            if self._first_backward is not None:
                self._first_backward.add(finished)
            known[index] = finished
        return [model for model in known if model is not None]

    def _compile(self, model: nn.Module, given: nn.Module) -> nn.Module:
        """Compiles a prepared model if the user had compiled it, or requested it with `dynamo_plugin`."""
        if compiling.is_compiled(given):
            return compiling.like(model, given)
        return compiling.apply(model, self.state.dynamo_plugin)

    def _known(self, model: nn.Module) -> nn.Module | None:
        """The prepared model that wraps `model`; `None` if it was not prepared."""
        own = compiling.inner(model)
        for prepared in self._models:
            inner = compiling.inner(prepared)
            if own is inner or own is self.strategy.unwrap(inner):
                return prepared
        return None

    def _wrap_optimizer(self, optimizer: Optimizer, device_placement: bool | None) -> AcceleratedOptimizer:
        for known in self._optimizers:
            if optimizer is known or optimizer is known.optimizer:
                return known
        prepared = (
            optimizer
            if isinstance(optimizer, AcceleratedOptimizer)
            else AcceleratedOptimizer(optimizer, self._moves_to_device(device_placement), self.scaler)
        )
        control = events.step_control()
        if control is not None:
            uneven = self.use_distributed and not self.even_batches
            control.attach("with even_batches=False, its ranks may take different numbers of steps" if uneven else "")
        return _remember(self._optimizers, prepared)

    def _refuse_unrelated_optimizers(self, models: Sequence[nn.Module], optimizers: Sequence[Optimizer]) -> None:
        known = [*self._models, *models]
        prepare_checks.refuse_unrelated_optimizers(known, optimizers, several_ranks=self.use_distributed)

    def _moves_to_device(self, device_placement: bool | None) -> bool:
        return self.device_placement if device_placement is None else device_placement

    def verify_device_map(self, model: nn.Module) -> bool:
        """Whether a model was loaded with a `device_map` of several entries, so that several ranks refuse it."""
        return prepare_checks.is_spread_over_devices(model)

    # Undoing

    def unwrap_model(
        self, model: nn.Module, keep_fp32_wrapper: bool = True, keep_torch_compile: bool = True
    ) -> nn.Module:
        """Returns the user's own model.

        Args:
            model: A prepared model.
            keep_fp32_wrapper: Whether its forward keeps running in mixed precision, with outputs in float32.
            keep_torch_compile: Whether a compiled model stays compiled.
        """
        own = self.strategy.unwrap(compiling.inner(model))
        if not keep_fp32_wrapper:
            precision.remove(own)
        return compiling.like(own, model) if keep_torch_compile else own

    def skip_first_batches(self, dataloader: DataLoader[Any], num_batches: int = 0) -> DataLoader[Any]:
        """Returns a loader that skips the first batches, to resume in the middle of an epoch."""
        return data.skip_first_batches(dataloader, num_batches)

    def free_memory(self, *objects: Any) -> list[Any]:
        """Drops all references to prepared objects, and frees their memory.

            model, optimizer = accelerator.free_memory(model, optimizer)

        Returns:
            A `None` for each object.
        """
        everything: tuple[list[Any], ...] = (self._models, self._optimizers, self._schedulers, self._dataloaders)
        for prepared in everything:
            prepared.clear()
        self._watch.clear()
        self._accumulation.step = 0
        return list(batch_size.release_memory(*objects))

    def clear(self, *objects: Any) -> list[Any]:
        """The same as `free_memory`."""
        return self.free_memory(*objects)


def _raw(optimizer: Optimizer) -> Optimizer:
    return optimizer.optimizer if isinstance(optimizer, AcceleratedOptimizer) else optimizer


def _distinct(optimizers: Sequence[Optimizer]) -> list[Optimizer]:
    return list({id(each): each for each in optimizers}.values())


def _remember(known: list[T], new: T) -> T:
    """Appends an object to the list unless the list contains it, and returns the object."""
    if not any(each is new for each in known):
        known.append(new)
    return new
