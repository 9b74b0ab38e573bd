"""What the tests of the training side share: states that start afresh, and ranks to run on."""

import os
import traceback
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.distributed as dist

from notebook_accel import Accelerator, notebook_launcher, set_seed
from notebook_accel.launch import engines
from notebook_accel.launch.engines.preloader import TRAINING
from notebook_accel.train.ranks.gradient_state import GradientState
from notebook_accel.train.ranks.state import AcceleratorState
from tests import preloading, shared_server

Ranks = Callable[..., list[Any]]
_IMPORTED = ("pytest", "accelerate", "torchdata.stateful_dataloader")
"""What the tests' own modules import, which ranks do too: a notebook would have them preloaded, as it imports them."""


@pytest.fixture(scope="session", autouse=True)
def engines_live_as_long_as_the_session() -> Iterator[None]:
    torch.set_num_threads(1)  # files are tested beside each other, and threads that wait for a core cost more than one
    # As in a notebook: otherwise each rank that shards or optimizes would spend seconds on these.
    with shared_server.used():
        engines.get().close()  # other tests may have started one that is no fork of the base server
        engines.get().warm()
        engines.get().preload([*TRAINING, *_IMPORTED])
    yield
    for engine in engines.running.values():
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
    preloading.wait()
    options.setdefault("timeout", 100)
    accelerates = {name: "" for name in os.environ if name.startswith("ACCELERATE_")}
    found = notebook_launcher(function, args, num_processes=size, device="cpu", env=accelerates, **options)
    return [None] * size if found is None else found


@pytest.fixture
def ranks() -> Ranks:
    """As `launch`, for a test, which does not wait for the session's server itself."""
    preloading.wait()
    return launch


@dataclass(frozen=True)
class _Failure:
    """That a case has failed among others."""

    text: str


class Cases:
    """What ranks find in each of several cases, which share one launch: `cases[name]` is a list by rank.

    The launch is made when the first case is asked for. It ends with the first case that fails; that case and those
    after it are then launched alone, so that each fails or not by itself.

    Args:
        cases: By name, a function and its arguments.
        size: The number of ranks.
        asked: The names that tests ask for, of which the launch is made; others are launched alone. By default all.
    """

    def __init__(
        self, cases: Mapping[Hashable, tuple[Any, ...]], size: int = 2, asked: Collection[Hashable] | None = None
    ) -> None:
        self._cases = cases
        self._size = size
        self._shared = [name for name in cases if asked is None or name in asked]
        self._found: dict[Hashable, list[Any]] | None = None

    def __getitem__(self, name: Hashable) -> list[Any]:
        if self._found is None:
            self._found = {}  # also if the launch itself fails: that is the error of the case that is asked for first
            by_rank = launch(_one_after_another, [self._cases[each] for each in self._shared], size=self._size)
            self._found = {
                key: list(found) for key, found in zip(self._shared, zip(*by_rank, strict=False), strict=False)
            }
        found = self._found.get(name)
        if found is not None and not any(isinstance(each, _Failure) for each in found):
            return found
        alone = launch(*self._cases[name], size=self._size)
        if found is not None:
            pytest.fail(f"{name} fails only after others:\n{next(e.text for e in found if isinstance(e, _Failure))}")
        return alone


def asked_for(request: pytest.FixtureRequest, *names: str) -> set[Any]:
    """The values of these parameters with which tests of the file run."""
    found = set()
    for item in request.session.items:
        parameters = getattr(item, "callspec", None)
        if item.path == request.path and parameters and parameters.params.keys() >= set(names):
            values = tuple(parameters.params[name] for name in names)
            found.add(values if len(names) > 1 else values[0])
    return found


def _one_after_another(cases: Sequence[tuple[Any, ...]]) -> list[Any]:
    """On a rank: what each case returns, up to the first that fails. Each begins as a rank does."""
    found: list[Any] = []
    for function, *arguments in cases:
        if AcceleratorState.settled() is not None:
            Accelerator().end_training()
        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()
        if dist.is_initialized() and dist.get_world_size() == 1:  # a launch of one rank has no group
            dist.destroy_process_group()
        set_seed(0)
        try:
            found.append(function(*arguments))
        except Exception:
            if dist.is_initialized():  # the others may wait for this rank
                dist.destroy_process_group()
            return [*found, _Failure(traceback.format_exc())]
    return found
