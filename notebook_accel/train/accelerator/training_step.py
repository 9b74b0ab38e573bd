"""The methods of `Accelerator` that a training step calls: accumulation, backward, clipping, collectives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from notebook_accel.train.accelerator.base import AcceleratorBase
from notebook_accel.train.data import uneven_inputs
from notebook_accel.train.models import compiling
from notebook_accel.train.options.plugins import AutocastKwargs, GradientAccumulationPlugin
from notebook_accel.train.ranks import collectives
from notebook_accel.train.ranks.step_observers import TrainingPoint
from notebook_accel.train.steps.accumulation import NO_OP, NoSync, NullContext
from notebook_accel.train.steps.optimizer import AcceleratedOptimizer
from notebook_accel.train.steps.tunables import Tunable


class Stepping(AcceleratorBase):
    """Accumulates gradients, runs backward passes and collectives."""

    # Gradient accumulation

    @property
    def sync_gradients(self) -> bool:
        """Whether the current batch is followed by an optimizer step, so that its gradients are synced."""
        return self.gradient_state.sync_gradients

    @sync_gradients.setter
    def sync_gradients(self, value: bool) -> None:
        self.gradient_state.sync_gradients = value

    @property
    def gradient_accumulation_steps(self) -> int:
        """The number of batches over which gradients are accumulated."""
        return self.gradient_state.num_steps

    @gradient_accumulation_steps.setter
    def gradient_accumulation_steps(self, value: int) -> None:
        self.gradient_state.num_steps = GradientAccumulationPlugin(num_steps=value).num_steps or 1

    @property
    def step(self) -> int:
        """The number of batches since a loader last ended."""
        return self._accumulation.step

    @step.setter
    def step(self, value: int) -> None:
        self._accumulation.step = value

    def accumulate(self, *models: nn.Module) -> NullContext:
        """Counts a batch; within the block, optimizers step and gradients are synced only if a step is due.

            for batch in loader:
                with accelerator.accumulate(model):
                    ...

        Args:
            models: The prepared models whose gradients are accumulated.
        """
        self._watch.check()
        return self._accumulation.next(models)

    def no_sync(self, model: nn.Module) -> NullContext:
        """Disables gradient synchronization within the block, as DDP's `no_sync` does."""
        return NoSync(self.strategy, (model,)) if self.strategy.supports_no_sync else NO_OP

    def trigger_sync_in_backward(self, model: nn.Module) -> AbstractContextManager[None]:
        """Makes backward passes in the block sync gradients even if their forward pass ran under `no_sync`."""
        return self.strategy.sync_in_backward(compiling.inner(model))

    @contextmanager
    def join_uneven_inputs(self, joinables: Sequence[Any], even_batches: bool | None = None) -> Iterator[None]:
        """Lets ranks that run out of batches take part in the others' collectives until all are done.

        They then take over the states of the optimizers and schedulers from the ranks that had more.

        Args:
            joinables: The prepared models (and other `Joinable` objects) of the loop.
            even_batches: Whether prepared loaders pad the ranks that have fewer batches; `None`: as configured.
        """
        with ExitStack() as stack:
            if even_batches is not None and self.use_distributed:
                stack.enter_context(uneven_inputs.overriding_even_batches(self._dataloaders, even_batches))
            if self.use_distributed:
                stack.enter_context(uneven_inputs.catching_up(self._optimizers, self._schedulers))
                stack.enter_context(self._accumulation.checked_by(uneven_inputs.check_accumulation))
            stack.enter_context(self.strategy.join([compiling.inner(each) for each in joinables]))
            yield
        if self.use_distributed:  # ranks that have run out of batches have made fewer steps
            point = TrainingPoint.of_this_rank()
            point.steps = int(collectives.reduce(torch.tensor(point.steps), "max"))

    # The step

    def backward(self, loss: torch.Tensor, **kwargs: Any) -> None:
        """Computes gradients: `loss.backward()`, of the loss divided by the accumulation steps, and scaled with fp16.

        Args:
            loss: A tensor without dimensions.
            kwargs: Arguments of `Tensor.backward`.
        """
        self._watch.check()
        if self._first_backward is not None:
            optimizers = [each.optimizer for each in self._optimizers]
            if not self._first_backward.check(loss, self._models, optimizers, self._dataloaders):
                self._first_backward = None
        state = self.gradient_state
        state.turn += 1
        steps = state.num_steps
        if steps != 1:
            loss = loss / steps
        if self.scaler is not None:
            loss = self.scaler.scale(loss)
        for begin in state.observers.before_backward:
            begin(loss, self._synchronizes)
        has_ended = False
        try:
            loss.backward(**kwargs)  # type: ignore[no-untyped-call]
            has_ended = True
        finally:
            for end in state.observers.after_backward:
                end(has_ended)
        self.strategy.after_backward()

    def _synchronizes(self) -> bool:
        return self.strategy.synchronizes(self._models)

    def unscale_gradients(self, optimizer: Any = None) -> None:
        """Removes fp16's scaling from the gradients, so that they can be inspected; without fp16, does nothing.

        Args:
            optimizer: One or several prepared optimizers; `None`: all.
        """
        scaler = self.scaler
        if scaler is None:
            return
        chosen = self._optimizers if optimizer is None else optimizer
        for each in chosen if isinstance(chosen, (list, tuple)) else [chosen]:
            scaler.unscale_(each.optimizer if isinstance(each, AcceleratedOptimizer) else each)

    def clip_grad_norm_(
        self, parameters: torch.Tensor | Iterable[torch.Tensor], max_norm: float, norm_type: float = 2
    ) -> torch.Tensor:
        """Scales all gradients by the same factor, so that their norm is at most `max_norm`.

        fp16's scaling is removed first. The norm is that of `torch.nn.utils.clip_grad_norm_`, over all parameters
        together, and over the shards of all ranks.

        Args:
            parameters: The parameters of prepared models.
            max_norm: The greatest norm.
            norm_type: The p of the p-norm; `float("inf")` for the largest absolute value.

        Returns:
            The norm before: a tensor without dimensions.
        """
        self.unscale_gradients()
        given = [parameters] if isinstance(parameters, torch.Tensor) else parameters
        return self.strategy.clip_grad_norm_(given, max_norm, norm_type)

    def clip_grad_value_(self, parameters: torch.Tensor | Iterable[torch.Tensor], clip_value: float) -> None:
        """Limits each element of the gradients to ±`clip_value`. fp16's scaling is removed first."""
        self.unscale_gradients()
        given = [parameters] if isinstance(parameters, torch.Tensor) else parameters
        self.strategy.clip_grad_value_(given, clip_value)

    @property
    def optimizer_step_was_skipped(self) -> bool:
        """Whether an optimizer skipped its last step because of overflowing gradients."""
        return any(optimizer.step_was_skipped for optimizer in self._optimizers)

    def autocast(self, autocast_handler: AutocastKwargs | None = None) -> AbstractContextManager[Any]:
        """Computes in the precision of the Accelerator within the block; prepared models do so by themselves.

        Args:
            autocast_handler: The options; `None`: those of `kwargs_handlers`.
        """
        return self._precision.autocast(autocast_handler)

    def maybe_context_parallel(
        self,
        buffers: Sequence[torch.Tensor] | None = None,
        buffer_seq_dims: Sequence[int] | None = None,
        no_restore_buffers: Set[torch.Tensor] | None = None,
    ) -> AbstractContextManager[None]:
        """Within the block, ranks share each sequence, if there are several along `cp`; otherwise it does nothing.

            with accelerator.maybe_context_parallel(buffers=[inputs, targets], buffer_seq_dims=[1, 1]):
                accelerator.backward(loss_function(model(inputs), targets))
                optimizer.step()

        Args:
            buffers: The tensors of a batch that have a dimension for the sequence, positions among them. In the block,
                they hold this rank's part, in place.
            buffer_seq_dims: That dimension of each.
            no_restore_buffers: Those that need not hold the whole sequences again after the block.

        Raises:
            ConfigurationError: The sequences cannot be cut into equal parts.
        """
        self.gradient_state.has_cut_sequences = True
        return self.strategy.share_sequences(buffers or (), buffer_seq_dims or (), no_restore_buffers or set())

    # Collectives

    def gather(self, tensor: Any) -> Any:
        """Concatenates the tensors of all ranks along their first dimension, in the order of the ranks.

        Ranks that get the same samples, because they share layers or sequences, count once.

        Args:
            tensor: A tensor or a tree of tensors, of the same shapes on all ranks.

        Returns:
            The same tree on every rank; a tensor of shape (n, …) has become (ranks × n, …), and one without dimensions
            (ranks,).

        Raises:
            DistributedOperationException: The shapes or types differ; the message lists those of each rank.
            TypeError: A leaf is not a tensor.
        """
        return collectives.gather_over(tensor, self._data_ranks)

    def gather_for_metrics(self, input_data: Any, use_gather_object: bool = False) -> Any:
        """Gathers like `gather`, but drops the samples that were repeated to pad the last batch.

        Args:
            input_data: A tensor, an array, or a list or tuple, with an entry for each sample; or a tuple, dict, or
                dataclass of these. A tensor without dimensions becomes one value for each rank.
            use_gather_object: Whether the entries are gathered as objects, so that the shapes of tensors may differ.
                The entries of lists may then be anything, and tensors become lists.

        Returns:
            The same tree, with the entries of all ranks.

        Raises:
            ConfigurationError: Something can't be gathered, or hasn't an entry for each sample of the last batch.
            DistributedOperationException: The shapes, the types, or the structures differ between ranks.
        """
        return uneven_inputs.gather_for_metrics(input_data, use_gather_object, self._data_ranks)

    def reduce(self, tensor: Any, reduction: str = "sum", scale: float = 1.0) -> Any:
        """Adds up the tensors of all ranks, or takes their `mean` or `max`; see `notebook_accel.reduce`.

        Ranks that share layers compute the same results, and count once. So do ranks that share sequences, unless the
        loop over the last prepared loader has used `maybe_context_parallel`, where each computes a part of the result.
        """
        sharing = self.state.sharing
        # Equal results have the same mean and maximum as one of them, and parts have to be in there.
        has_parts = reduction != "sum" or self.gradient_state.has_cut_sequences
        return collectives.reduce_over(tensor, reduction, scale, sharing.results if has_parts else sharing.data)

    def pad_across_processes(self, tensor: Any, dim: int = 0, pad_index: float = 0, pad_first: bool = False) -> Any:
        """Pads tensors along a dimension to the longest of all ranks; see `notebook_accel.pad_across_processes`."""
        return collectives.pad_across_processes(tensor, dim=dim, pad_index=pad_index, pad_first=pad_first)

    def tunable(
        self,
        name: str,
        value: float,
        *,
        low: float | None = None,
        high: float | None = None,
        on_change: Callable[[Any], object] | None = None,
    ) -> Tunable:
        """A number that you can change while the training runs, in the panel or with `job.tune`.

            def set_rate(rate):
                for group in optimizer.param_groups:
                    group["lr"] = rate

            accelerator.tunable("lr", 0.1, low=0, on_change=set_rate)

        It changes after the same step on all ranks, all of which call this method. Checkpoints save it, and a training
        run that continues from a checkpoint starts with the saved value.

        Args:
            name: Its name in the panel and in `job.tune`: a Python name.
            value: The first value. An integer stays one.
            low: The least value that is accepted; `None`: any.
            high: The greatest value that is accepted; `None`: any.
            on_change: Called on each rank with each new value, between two steps; not with the first one. If it raises
                an exception, the value stays as it was, and the request fails with that error.

        Returns:
            An object whose attribute `value` is the current number.

        Raises:
            ConfigurationError: The name is not a Python name, or a number is not finite or out of range.
        """
        return self._tunables.add(Tunable(name, value, low, high, on_change))

    def set_trigger(self) -> None:
        """Sets a flag that all ranks see in `check_trigger`, for instance to stop early."""
        self.flag_tensor = torch.tensor(1)

    def check_trigger(self) -> bool:
        """Whether any rank has set the flag since the last check; all ranks call it."""
        own = torch.tensor(0) if self.flag_tensor is None else self.flag_tensor
        self.flag_tensor = None
        return bool(collectives.reduce(own, "sum") > 0)
