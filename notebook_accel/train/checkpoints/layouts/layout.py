"""The contract of a layout, which says how the states of models and optimizers lie in the files of a checkpoint."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn
from torch.optim import Optimizer

from notebook_accel.train.checkpoints.parts import Part

State = dict[str, torch.Tensor]
States = Sequence[State]
Models = Sequence[nn.Module]
Optimizers = Sequence[Optimizer]


@dataclass(frozen=True)
class SaveOptions:
    """How to write a checkpoint."""

    safe_serialization: bool = True
    """Whether unsharded weights are written as safetensors."""
    writes: bool = True
    """Whether this rank writes the files that would be equal on all ranks."""
    save: str = ""
    """What tells the save from others to the same folder, if ranks write to it one by one."""
    group: Any = None
    """The process group with which ranks agree on shards while they are written; `None` for that of the training."""
    first: int = 0
    """The number of the first model and of the first optimizer, in the names of their files."""
    owners: Models = ()
    """Models that are not written, but whose parameters the optimizers have."""


@dataclass(frozen=True)
class LoadOptions:
    """How to read a checkpoint."""

    strict: bool = True
    """Whether the weights must be exactly the model's."""
    map_location: Any = "cpu"
    """The device that optimizer states are loaded to first."""
    load_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """More arguments of `torch.load`, for optimizers and schedulers."""
    first: int = 0
    """As when they were saved; the same holds for the next one."""
    owners: Models = ()


class LaidOut(Protocol):
    """What checkpoints need of a strategy, which knows how models are distributed over the ranks."""

    @property
    def layout(self) -> str:
        """The name of the layout of its checkpoints."""

    @property
    def gathers_weights(self) -> bool:
        """Whether `state_dict` needs every rank."""

    def state_dict(self, model: nn.Module) -> State:
        """All weights of a model; complete on the main rank, perhaps only there."""

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """What this rank holds of the state of an optimizer."""


class Layout(ABC):
    """One layout. All ranks call its methods together, unless each rank has all weights.

    Args:
        strategy: What distributes the models over the ranks.
    """

    writes_together = False
    """Whether ranks communicate while they write the parts."""

    def __init__(self, strategy: LaidOut) -> None:
        self.strategy = strategy

    @abstractmethod
    def weights(self, models: Models) -> list[State]:
        """The weights that save hooks can see and remove, with an entry for each model; empty if they are sharded."""

    @abstractmethod
    def parts(self, models: Models, weights: States, optimizers: Optimizers, options: SaveOptions) -> list[Part]:
        """Collects this rank's parts of weights and optimizer states; `weights` are what the save hooks have kept."""

    @abstractmethod
    def load(self, folder: Path, models: Models, optimizers: Optimizers, options: LoadOptions) -> None:
        """Loads models and optimizers from a checkpoint, perhaps saved on a different number of ranks.

        Args:
            folder: The checkpoint.
            models: The user's models, unwrapped.
            optimizers: Torch's optimizers.
            options: How to load.

        Raises:
            CheckpointError: The folder has no states for them, or has those of others.
        """
