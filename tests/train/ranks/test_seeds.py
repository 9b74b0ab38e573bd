"""Random states: seeded together, and made equal on all ranks."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import accelerate
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from notebook_accel import Accelerator, DataLoaderConfiguration
from notebook_accel.errors import ConfigurationError
from notebook_accel.train.ranks.seeds import number_of_first, set_seed, synchronize_rng_state, synchronize_rng_states
from tests.train.conftest import Cases, Ranks
from tests.train.data.loaders import numbers, read


def draw() -> tuple[Any, ...]:
    return random.random(), float(np.random.rand()), torch.rand(()).item()


def test_a_seed_is_any_whole_number() -> None:
    set_seed(np.int64(5))
    first = draw()
    set_seed(5)
    assert draw() == first
    with pytest.raises(ConfigurationError, match=r"set_seed\(seed='x'\): give a whole number"):
        set_seed("x")


@pytest.fixture
def undeterministic() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)
    os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)


@pytest.mark.parametrize("seed", [0, 42, 2**32 - 1])
def test_a_seed_is_the_seed_of_all_as_with_accelerate(seed: int) -> None:
    set_seed(seed)
    ours = draw()
    accelerate.utils.set_seed(seed)
    assert draw() == ours


def test_any_seed_that_torch_takes_is_one() -> None:
    set_seed(2**40)
    assert torch.initial_seed() == 2**40


class Augmented(Dataset[tuple[int, float]]):
    """Samples with the number that a random augmentation draws."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[int, float]:
        return index, torch.rand(()).item()


def unseeded(workers: int, options: dict[str, Any]) -> tuple[list[int], list[float], list[float]]:
    """A rank's samples of an epoch, what it has drawn for each, and what dropout keeps."""
    config = DataLoaderConfiguration(use_seedable_sampler="seedable" in options)
    accelerator = Accelerator(dataloader_config=config, rng_types=options.get("rng_types"))
    loader = accelerator.prepare(DataLoader(Augmented(), shuffle=True, num_workers=workers))
    samples, drawn = zip(*((int(index), float(number)) for index, number in loader), strict=True)
    return list(samples), list(drawn), torch.nn.functional.dropout(torch.ones(32)).tolist()


@pytest.mark.parametrize(
    ("workers", "options"),
    [(0, {}), (1, {}), (0, {"rng_types": []}), (0, {"rng_types": [], "seedable": True})],
    ids=str,
)
def test_ranks_that_nobody_has_seeded_draw_other_numbers_for_samples_that_they_share_out(
    workers: int, options: dict[str, Any], ranks: Ranks
) -> None:
    before = torch.get_rng_state()
    torch.seed()
    try:
        (samples, drawn, kept), (other_samples, other_drawn, other_kept) = ranks(unseeded, workers, options)
    finally:
        torch.set_rng_state(before)
    assert sorted(samples + other_samples) == list(range(8))
    assert set(drawn).isdisjoint(other_drawn)
    assert kept != other_kept


@pytest.mark.parametrize("number", [0, 2**63 + 5, 2**64 - 1, -5])
def test_any_seed_can_be_sent(number: int) -> None:
    assert number_of_first(number) == number


@pytest.fixture(scope="module")
def on_two() -> Cases:
    calls: list[tuple[Any, ...]] = [(seeded, True), (seeded, False), (synchronized,), (after_an_epoch,)]
    return Cases({call: call for call in calls})


def test_a_rank_can_have_a_seed_of_its_own(on_two: Cases) -> None:
    first, second = on_two[seeded, True]
    assert first != second
    set_seed(4)
    assert second == draw()
    assert on_two[seeded, False] == [first, first]


def seeded(device_specific: bool) -> tuple[Any, ...]:
    set_seed(3, device_specific=device_specific)
    return draw()


def test_deterministic_algorithms_can_be_asked_for(undeterministic: None) -> None:
    set_seed(1, deterministic=True)
    assert torch.are_deterministic_algorithms_enabled()


def synchronized() -> list[Any]:
    set_seed(0, device_specific=True)
    generator = torch.Generator().manual_seed(torch.initial_seed())
    synchronize_rng_states(["generator"], generator)
    found = [torch.rand(1, generator=generator).item(), torch.rand(1).item()]
    synchronize_rng_state("torch")
    return [*found, torch.rand(1).item()]


def test_states_become_those_of_rank_0(on_two: Cases) -> None:
    first, second = on_two[(synchronized,)]
    assert [mine == theirs for mine, theirs in zip(first, second, strict=True)] == [True, False, True]


def after_an_epoch() -> tuple[Any, ...]:
    set_seed(0, device_specific=True)
    loader = Accelerator().prepare(numbers(20, shuffle=True))
    return read(loader), draw()


def test_by_default_an_epoch_makes_only_the_order_equal(on_two: Cases) -> None:
    (first, drawn), (second, drawn_too) = on_two[(after_an_epoch,)]
    assert len({number for batch in first + second for number in batch}) == 20
    assert not set(drawn) & set(drawn_too)


def test_what_has_no_state_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="pass generator="):
        synchronize_rng_state("generator")
    with pytest.raises(ValueError, match="dice"):
        synchronize_rng_states(["dice"])
