"""The strategies, and which of them is for whom."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from notebook_accel.train.ranks.state import PartialState
from notebook_accel.train.strategies.base import Settings, Strategy


@dataclass(frozen=True)
class Row:
    """One strategy. Its module is imported when it is chosen: some of them bring a second's worth of torch along."""

    module: str
    name: str
    wanted: Callable[[PartialState, Settings], bool]
    """Whether it is the one for these ranks and settings, if none before it was."""

    def load(self) -> type[Strategy]:
        found: type[Strategy] = getattr(importlib.import_module(f"{__name__}.{self.module}"), self.name)
        return found


TABLE = (
    Row("xla", "XlaReplicas", lambda state, settings: state.backend == "xla"),
    Row("tensor_parallel", "TensorParallel", lambda state, settings: settings.tensor_parallel is not None),
    Row("fsdp", "FullySharded", lambda state, settings: settings.fsdp is not None),
    Row("ddp", "DataParallel", lambda state, settings: state.use_distributed),
    Row("single", "SingleDevice", lambda state, settings: True),
)


def choose(state: PartialState, settings: Settings) -> Strategy:
    """The strategy for these ranks and settings.

    Raises:
        ConfigurationError: Settings that it cannot follow.
    """
    row = next(each for each in TABLE if each.wanted(state, settings))
    return row.load()(state, settings)
