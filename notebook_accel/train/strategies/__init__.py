"""The strategies, and which of them is for whom."""

from __future__ import annotations

from notebook_accel.train.state import PartialState
from notebook_accel.train.strategies.base import Settings, Strategy
from notebook_accel.train.strategies.ddp import DataParallel
from notebook_accel.train.strategies.fsdp import FullySharded
from notebook_accel.train.strategies.single import SingleDevice
from notebook_accel.train.strategies.tensor_parallel import TensorParallel

TABLE: tuple[type[Strategy], ...] = (TensorParallel, FullySharded, DataParallel, SingleDevice)
"""In this order they are asked whether they are wanted; the last always is."""


def choose(state: PartialState, settings: Settings) -> Strategy:
    """The strategy for these ranks and settings.

    Raises:
        ConfigurationError: Settings that it cannot follow.
    """
    return next(each for each in TABLE if each.wanted(state, settings))(state, settings)
