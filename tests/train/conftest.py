"""What the tests of the training side share: states that start afresh, and ranks to run on."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch.distributed as dist

from notebook_accel import notebook_launcher
from notebook_accel.launch import engines
from notebook_accel.notebook.preload import TRAINING
from notebook_accel.train.gradient_state import GradientState
from notebook_accel.train.state import AcceleratorState

Ranks = Callable[..., list[Any]]
_IMPORTED = ("pytest", "accelerate", "torchdata.stateful_dataloader")
"""What the tests' own modules import, which ranks do too: a notebook would have them preloaded, as it imports them."""


@pytest.fixture(scope="session", autouse=True)
def engines_live_as_long_as_the_session() -> Iterator[None]:
    # As in a notebook: otherwise each rank that shards or optimizes would spend seconds on these.
    engines.get().warm()
    engines.get().preload([*TRAINING, *_IMPORTED])
    yield
    for engine in engines._running.values():
        engine.close()


@pytest.fixture(autouse=True)
def states_start_afresh() -> Iterator[None]:
    _reset()
    yield
    _reset()


def _reset() -> None:
    GradientState._reset_state()
    AcceleratorState._reset_state(reset_partial_state=True)
    if dist.is_initialized():
        dist.destroy_process_group()


def launch(function: Callable[..., Any], *args: Any, size: int = 2, **options: Any) -> list[Any]:
    """Runs `function(*args)` on so many gloo ranks, and returns what each of them returned.

    Ranks that hang are shown with their stacks, before pytest would end the test without.
    """
    options.setdefault("timeout", 100)
    accelerates = {name: "" for name in os.environ if name.startswith("ACCELERATE_")}
    found = notebook_launcher(function, args, num_processes=size, device="cpu", env=accelerates, **options)
    return [None] * size if found is None else found


@pytest.fixture
def ranks() -> Ranks:
    """As `launch`, for a test."""
    return launch
