"""A replica of the model on every rank, gradients averaged: torch's `DistributedDataParallel`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join, Joinable, _JoinConfig
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from notebook_accel.errors import ConfigurationError
from notebook_accel.train import step_timing
from notebook_accel.train.models import compiling
from notebook_accel.train.options.enums import DDPCommunicationHookType as Hook
from notebook_accel.train.options.plugins import DistributedDataParallelKwargs
from notebook_accel.train.ranks.seeds import message_device
from notebook_accel.train.ranks.state import PartialState
from notebook_accel.train.strategies.base import Settings, Strategy
from notebook_accel.train.strategies.parameters import take_from_first
from notebook_accel.train.tensors import graph

_HOOKS: dict[Hook, Callable[..., Any]] = {
    Hook.FP16: default_hooks.fp16_compress_hook,
    Hook.BF16: default_hooks.bf16_compress_hook,
    Hook.POWER_SGD: powerSGD_hook.powerSGD_hook,
    Hook.BATCHED_POWER_SGD: powerSGD_hook.batched_powerSGD_hook,
}
_WRAPPERS: dict[Hook, Callable[..., Any]] = {
    Hook.FP16: default_hooks.fp16_compress_wrapper,
    Hook.BF16: default_hooks.bf16_compress_wrapper,
}
_USED: Any = 1
"""In place of the `True` that each call of a model in DDP sets `require_forward_param_sync` to: a pass has followed."""
_WITH_STATE = (Hook.POWER_SGD, Hook.BATCHED_POWER_SGD)


class DataParallel(Strategy):
    """Several ranks, each with a replica of the model."""

    def __init__(self, state: PartialState, settings: Settings) -> None:
        super().__init__(state, settings)
        if Hook.BF16 in (settings.ddp.comm_hook, settings.ddp.comm_wrapper) and state.backend != "nccl":
            raise ConfigurationError(
                f"gradients can be compressed to bf16 only between GPUs with nccl, but these ranks use "
                f"{state.backend}: use comm_hook='fp16', or leave it out"
            )
        # Without sync, DDP counts the passes of a static graph wrongly: https://github.com/pytorch/pytorch/pull/187732
        self.supports_no_sync = not settings.ddp.static_graph

    def prepare(self, models: Sequence[nn.Module], optimizers: Sequence[Optimizer]) -> list[nn.Module]:
        return [self._wrap(model) for model in models]

    def _wrap(self, model: nn.Module) -> nn.Module:
        if not _has_gradients(model):  # DDP refuses it, since it has no gradients to average
            _copy_if_different(model)
            return model
        device = self.state.device
        wrapped = DistributedDataParallel(
            model, device_ids=[device.index] if device.type == "cuda" else None, **_arguments(self.settings.ddp)
        )
        wrapped.require_forward_param_sync = _USED
        _compress(wrapped, self.settings.ddp)
        if self.settings.ddp.find_unused_parameters:
            step_timing.watch_unused_search(wrapped)
        return wrapped

    def is_prepared(self, model: nn.Module) -> bool:
        return isinstance(model, DistributedDataParallel)

    def set_gradient_sync(self, model: nn.Module, enabled: bool) -> bool:
        if not isinstance(model, DistributedDataParallel):
            return True
        before: bool = model.require_backward_grad_sync
        model.require_backward_grad_sync = enabled
        return before

    def synchronizes(self, models: Sequence[nn.Module]) -> bool:
        return any(getattr(compiling.inner(model), "require_backward_grad_sync", False) for model in models)

    def before_backward(self, models: Sequence[nn.Module], loss: torch.Tensor) -> None:
        """Has DDP average the gradients also if the model was not called since the last pass.

        DDP prepares for one backward pass at the end of each call. Otherwise, the gradients of a second loss, or of a
        method that is called past DDP, would stay the rank's own: https://github.com/huggingface/trl/issues/7245
        """
        for each in models:
            model = compiling.inner(each)
            if not isinstance(model, DistributedDataParallel) or not model.require_backward_grad_sync:
                continue
            if model.static_graph or model._join_config.enable:  # both count passes by the calls
                continue
            was_called = model.require_forward_param_sync is True
            model.require_forward_param_sync = _USED
            if was_called:
                if model.find_unused_parameters:  # in what this loss depends on, rather than in what the call returned
                    model.reducer.prepare_for_backward([loss])
            elif _has_averaged(model) and _depends_on(loss, model):
                model.reducer._rebuild_buckets()  # which a call does first, in the order of the first pass
                model.reducer.prepare_for_backward([loss] if model.find_unused_parameters else [])

    def refuse_unaveraged(self, models: Sequence[nn.Module], optimizer: Optimizer) -> None:
        for model in models:
            own = compiling.inner(model)
            if isinstance(own, DistributedDataParallel) and not _has_averaged(own) and _trains(optimizer, own):
                raise ConfigurationError(_unaveraged(own))

    def replicated(self, models: Sequence[nn.Module]) -> dict[str, nn.Parameter] | None:
        found: dict[str, nn.Parameter] = {}
        for index, model in enumerate(models):
            own = compiling.inner(model)
            if not isinstance(own, DistributedDataParallel):
                continue
            which = f" of model {index}" if len(models) > 1 else ""
            if not own.require_backward_grad_sync:  # within LocalSGD or no_sync, ranks learn by themselves
                return None
            found |= {
                name + which: each
                for name, each in own.module.named_parameters()
                if each.requires_grad and name not in own.parameters_to_ignore
            }
        return found

    def sync_in_backward(self, model: nn.Module) -> AbstractContextManager[None]:
        return _syncing(model)

    def join(self, models: Sequence[nn.Module]) -> AbstractContextManager[Any]:
        for model in models:
            if not isinstance(model, Joinable) and _has_gradients(model):
                raise ConfigurationError(
                    f"join_uneven_inputs was given a {type(model).__name__} that is not prepared, so the ranks have "
                    "no collectives to join: pass the model that accelerator.prepare(model) returned"
                )
        # Within no_sync or LocalSGD, a model has no collectives to join. At its end, Join would replace what ranks have
        # learned by themselves by the weights of one of them.
        joinables: list[Joinable] = [
            each for each in models if isinstance(each, Joinable) and getattr(each, "require_backward_grad_sync", True)
        ]
        return _joining(joinables) if joinables else nullcontext()


@contextmanager
def _joining(joinables: list[Joinable]) -> Iterator[None]:
    """Torch's `Join`, after which each rank can run forward passes alone: torch leaves them waiting for all ranks."""
    try:
        with Join(joinables):
            yield
    finally:
        for each in joinables:
            each._join_config = _JoinConfig.construct_disabled_join_config()  # type: ignore[no-untyped-call]


def _has_gradients(model: Any) -> bool:
    """Whether a model has gradients; true for anything that is not a module."""
    return not isinstance(model, nn.Module) or any(each.requires_grad for each in model.parameters())


def _depends_on(loss: torch.Tensor, model: nn.Module) -> bool:
    own = {id(each) for each in model.parameters()}
    return any(id(each) in own for each in graph.parameters(loss))


def _has_averaged(model: DistributedDataParallel) -> bool:
    """Whether the last backward pass that should average the gradients has averaged all of them.

    DDP averages them once each parameter has its gradient. If some get none, DDP itself says so only in the next
    forward pass: https://github.com/pytorch/pytorch/issues/128949
    """
    try:
        model._check_reducer_finalized()  # type: ignore[no-untyped-call]
    except RuntimeError:
        return False
    return True


def _trains(optimizer: Optimizer, model: nn.Module) -> bool:
    own = {id(parameter) for parameter in model.parameters()}
    return any(id(each) in own for group in optimizer.param_groups for each in group["params"])


def _unaveraged(model: DistributedDataParallel) -> str:
    trained = [(name, each) for name, each in model.module.named_parameters() if each.requires_grad]
    unused = [name for name, each in trained if each.grad is None]
    some = f"{len(unused)} of {len(trained)}, such as {unused[0]}, have none" if unused else "some have none"
    return (
        f"the gradients of {type(model.module).__name__} are averaged over the ranks once a backward pass has reached "
        f"all of its parameters, but {some}, so after optimizer.step() the ranks would have different weights: pass "
        "kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)] to Accelerator, or freeze what "
        "the loss doesn't depend on, with requires_grad_(False), before prepare"
    )


def _copy_if_different(model: nn.Module) -> None:
    """Gives all ranks the weights of rank 0, unless they are equal already, as those that were read from a file are."""
    tensors = [each.detach() for each in (*model.parameters(), *model.buffers()) if each.is_floating_point()]
    tensors = [each for each in tensors if each.numel() and not each.is_meta]
    if not tensors:
        return
    own = torch.stack([each.sum(dtype=torch.float64).to(message_device()) for each in tensors])
    first = own.clone()
    dist.broadcast(first, 0)
    differs = (first != own).any().int()
    dist.all_reduce(differs, dist.ReduceOp.MAX)
    if differs:
        take_from_first(tensors)


@contextmanager
def _syncing(model: nn.Module) -> Iterator[None]:
    if not isinstance(model, DistributedDataParallel):
        yield
        return
    before = model.require_backward_grad_sync
    model.require_backward_grad_sync = True
    # The reducer prepares for the backward pass at the end of the forward pass, but without sync it did not.
    model.reducer.prepare_for_backward([])
    try:
        yield
    finally:
        model.require_backward_grad_sync = before


def _arguments(options: DistributedDataParallelKwargs) -> dict[str, Any]:
    own = ("comm_hook", "comm_wrapper", "comm_state_option")
    return {name: value for name, value in options.to_kwargs().items() if name not in own}


def _compress(model: DistributedDataParallel, options: DistributedDataParallelKwargs) -> None:
    if options.comm_hook is Hook.NO and options.comm_wrapper is Hook.NO:
        return
    hook = _HOOKS.get(options.comm_hook, default_hooks.allreduce_hook)
    if options.comm_wrapper is not Hook.NO:
        hook = _WRAPPERS[options.comm_wrapper](hook)
    state = None
    if options.comm_hook in _WITH_STATE:
        state = powerSGD_hook.PowerSGDState(torch.distributed.group.WORLD, **options.comm_state_option)
    model.register_comm_hook(state=state, hook=hook)
