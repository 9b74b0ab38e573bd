"""The contract of a strategy, which distributes models and optimizers over the ranks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from notebook_accel.train.models import parallel_wrappers
from notebook_accel.train.options.fsdp import FullyShardedDataParallelPlugin
from notebook_accel.train.options.plugins import DistributedDataParallelKwargs
from notebook_accel.train.ranks.mesh import ALONE, REPLICAS, Mesh, Ranks, SampleSharing
from notebook_accel.train.ranks.state import PartialState
from notebook_accel.train.strategies import clipping

StateDict = dict[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The user's choices that a strategy may depend on."""

    mixed_precision: str = "no"
    ddp: DistributedDataParallelKwargs = field(default_factory=DistributedDataParallelKwargs)
    fsdp: FullyShardedDataParallelPlugin | None = None
    mesh: Mesh = REPLICAS
    """How the ranks are arranged, as all plugins and configurations together say."""


class Strategy(ABC):
    """Distributes models and optimizers over the ranks.

    "A model" is one that `prepare` has returned, without a compile wrapper; "an optimizer" is torch's own, not the
    prepared one. Methods that communicate are called on all ranks, in the same order.
    """

    keeps_parameters = True
    """Whether the parameters of a prepared model are those that its outputs depend on."""
    supports_no_sync = True
    """Whether `set_gradient_sync` can disable gradient synchronization."""
    gathers_weights = False
    """Whether `state_dict` needs every rank, so that a rank that calls it alone waits for the others."""

    def __init__(self, state: PartialState, settings: Settings) -> None:
        self.state = state
        self.settings = settings
        self.mesh = settings.mesh
        self._local: set[int] = set()
        """IDs of the models whose gradient synchronization is disabled."""

    @cached_property
    def sharing(self) -> SampleSharing:
        """How the ranks share the samples, as follows from the mesh; all ranks ask for it together the first time."""
        mesh = self.mesh.device_mesh if self.state.use_distributed else None
        return SampleSharing.of(mesh, self.state.process_index, self.state.num_processes)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "sharing"}  # it has other ranks there

    # Preparing

    def to_device(self, model: nn.Module) -> nn.Module:
        """Moves a model to this rank's device."""
        return model.to(self.state.device)

    @abstractmethod
    def prepare(self, models: Sequence[nn.Module], optimizers: Sequence[Optimizer]) -> list[nn.Module]:
        """Prepares the models of one `prepare` call for training on the ranks, together with their optimizers.

        If it replaces parameters, it updates the optimizers in place.
        """

    @abstractmethod
    def is_prepared(self, model: nn.Module) -> bool:
        """Whether this strategy has wrapped or sharded the model already."""

    # A step

    def set_gradient_sync(self, model: nn.Module, enabled: bool) -> bool:
        """Sets whether the next backward passes synchronize gradients between the ranks; returns whether they did."""
        before = id(model) not in self._local
        (self._local.discard if enabled else self._local.add)(id(model))
        return before

    def synchronizes(self, models: Sequence[nn.Module]) -> bool:
        """Whether the next backward pass waits for the gradients of other ranks.

        Args:
            models: The prepared models, perhaps in compile wrappers.
        """
        return False

    def before_backward(self, models: Sequence[nn.Module], loss: torch.Tensor) -> None:  # noqa: B027
        """Sees to it that the backward pass of a loss synchronizes the gradients, if it should.

        Args:
            models: The prepared models, perhaps in compile wrappers.
            loss: What the pass begins with.
        """

    def after_backward(self) -> None:  # noqa: B027  # most strategies do so in the backward pass
        """Synchronizes the gradients after a backward pass, if the backward pass itself has not done so."""

    def refuse_unaveraged(self, models: Sequence[nn.Module], optimizer: Optimizer) -> None:  # noqa: B027
        """Refuses a step with gradients of which some still wait to be averaged over the ranks.

        Args:
            models: The prepared models, perhaps in compile wrappers.
            optimizer: The optimizer that is about to step.

        Raises:
            ConfigurationError: The ranks would no longer have the same weights.
        """

    def replicated(self, models: Sequence[nn.Module]) -> dict[str, nn.Parameter] | None:
        """The parameters that are equal on all ranks before each step, by name, with equal gradients.

        `None`: nothing has to be equal, not even the options of optimizers, or the ranks have no store to compare it.

        Args:
            models: The prepared models, perhaps in compile wrappers.
        """
        return None

    def sync_in_backward(self, model: nn.Module) -> AbstractContextManager[None]:
        """Makes backward passes in the block sync gradients even if synchronization was off in their forward pass."""
        return nullcontext()

    def clip_grad_norm_(self, parameters: Iterable[torch.Tensor], max_norm: float, norm_type: float) -> torch.Tensor:
        """Scales gradients so that their norm over all ranks is at most `max_norm`; returns the norm before."""
        return clipping.clip_norm(parameters, max_norm, norm_type, self._unaveraged)

    def clip_grad_value_(self, parameters: Iterable[torch.Tensor], clip_value: float) -> None:
        """Limits each element of the gradients to ±`clip_value`."""
        clipping.clip_value(parameters, clip_value)

    @property
    def _unaveraged(self) -> Ranks:
        """The ranks that have gradients of their own for parameters that are not sharded."""
        return ALONE

    @abstractmethod
    def join(self, models: Sequence[nn.Module]) -> AbstractContextManager[Any]:
        """In the block, ranks that run out of batches take part in the others' collectives, so that no rank hangs."""

    def share_sequences(
        self, buffers: Sequence[torch.Tensor], dims: Sequence[int], no_restore: Set[torch.Tensor]
    ) -> AbstractContextManager[None]:
        """In the block, the buffers hold this rank's part of the sequences, if ranks share them."""
        return nullcontext()

    # Saving

    def state_dict(self, model: nn.Module) -> StateDict:
        """All weights of a model under the user's parameter names; complete on the main rank, perhaps only there."""
        return dict(parallel_wrappers.unwrap(model).state_dict())

    @property
    def layout(self) -> str:
        """How its models and optimizers lie in checkpoints: a name of `checkpoints.layouts.TABLE`."""
        return "replicated"

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """What this rank holds of the state of an optimizer."""
        return optimizer.state_dict()
