"""Ranks that share layers or sequences: they read the same samples, draw the same numbers, and count once."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from notebook_accel import Accelerator, AcceleratorState, ParallelismConfig, PartialState, set_seed
from notebook_accel.errors import ConfigurationError
from notebook_accel.utils import TorchTensorParallelConfig
from tests.train.conftest import Cases

LAYERS, SEQUENCES = {"tp_size": 2}, {"cp_size": 2}
PAIRS = {"dp_shard_size": 2, "tp_size": 2}


def accelerator(sizes: dict[str, int]) -> Accelerator:
    if not sizes:
        return Accelerator()
    plan = TorchTensorParallelConfig(plan={"0": "colwise", "2": "rowwise"}) if "tp_size" in sizes else None
    return Accelerator(parallelism_config=ParallelismConfig(**sizes, tp_handler=plan))


def net() -> nn.Module:
    """With dropout of activations that all ranks of a group have, before and after the layers that are split."""
    layers = nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)
    return nn.Sequential(*layers, nn.Dropout(0.5), nn.Linear(4, 1))


class Augmented(Dataset[Any]):
    """Numbers, each with what Python's, NumPy's and torch's global generators add to it."""

    def __init__(self, own: np.random.Generator | None = None) -> None:
        self.own = own

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> list[float]:
        noise = torch.rand(()).item() if self.own is None else self.own.random()
        return [index, random.random(), float(np.random.rand()), noise]


class Stream(IterableDataset[Any]):
    """Numbers in an order of their own each time."""

    def __iter__(self) -> Iterator[int]:
        return iter(random.sample(range(8), 8))


def seeded_apart(sizes: dict[str, int], extra_draw: bool = False) -> dict[str, Any]:
    """Two epochs and the outputs of each step, on ranks that were seeded differently, as far as they may be."""
    set_seed(PartialState().process_index)
    own = accelerator(sizes)
    model, loader = own.prepare(net(), DataLoader(Augmented(), 2, shuffle=True))
    if extra_draw:
        draw()
    found: dict[str, list[Any]] = {"samples": [], "outputs": [], "numbers": []}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        for epoch in range(2):
            if epoch and own.is_main_process:
                draw()
            for batch in loader:
                found["samples"].append(torch.stack(batch).tolist())
                found["outputs"].append(model(torch.stack(batch, 1).float()).tolist())
                found["numbers"].append(draw())
                if extra_draw and own.is_main_process:
                    draw()
    set_seed(3, device_specific=True)
    return {
        **found,
        "seeded": draw(),
        "told": [str(each.message) for each in told],
        "files": [w.filename for w in told],
    }


def draw() -> tuple[float, ...]:
    return random.random(), float(np.random.rand()), torch.rand(()).item()


def differing() -> str:
    """What is said of samples that differ between ranks that share layers."""
    loader = accelerator(LAYERS).prepare(DataLoader(Augmented(np.random.default_rng()), 2))
    try:
        next(iter(loader))
    except ConfigurationError as error:
        return str(error)
    return "it is not refused"


def counted(sizes: dict[str, int]) -> dict[str, Any]:
    """How many of 8 samples are right, counted as an evaluation does."""
    own = accelerator(sizes)
    right = rows = 0
    for batch in own.prepare(DataLoader(torch.arange(8), batch_size=2)):
        right += own.reduce((batch >= 0).sum()).item()
        rows += len(own.gather_for_metrics(batch))
    mean = own.reduce(torch.tensor(2.0), "mean", scale=3.0).item()
    with own.split_between_processes(list(range(4))) as mine, AcceleratorState().split_between_processes("ab") as text:
        return {
            "right": right,
            "rows": rows,
            "mean": mean,
            "mine": mine,
            "text": text,
            "objects": own.gather_for_metrics(["a"]),
        }


def streamed(sizes: dict[str, int], dispatch: bool | None) -> tuple[list[Any], list[Any]]:
    """What this rank reads of a stream, and what is gathered."""
    from notebook_accel import DataLoaderConfiguration

    set_seed(PartialState().process_index * bool(dispatch is None))
    plan = TorchTensorParallelConfig(plan={"0": "colwise"})
    config = DataLoaderConfiguration(dispatch_batches=dispatch)
    own = Accelerator(parallelism_config=ParallelismConfig(**sizes, tp_handler=plan), dataloader_config=config)
    batches = list(own.prepare(DataLoader(Stream(), batch_size=1)))
    return [each.tolist() for each in batches], [own.gather_for_metrics(each).tolist() for each in batches]


LAYOUTS = {"layers": LAYERS, "sequences": SEQUENCES}


@pytest.fixture(scope="module")
def on_two() -> Cases:
    cases: dict[Any, Any] = {"differing": (differing,), "draws": (seeded_apart, LAYERS, True)}
    for name, sizes in LAYOUTS.items():
        cases |= {name: (seeded_apart, sizes), ("counted", name): (counted, sizes)}
    return Cases({**cases, "stream": (streamed, LAYERS, None), "parts": (parts_counted,)})


@pytest.fixture(scope="module")
def on_four() -> Cases:
    streams = {dispatch: (streamed, PAIRS, dispatch) for dispatch in (None, True, False)}
    return Cases({"pairs": (seeded_apart, PAIRS), "counted": (counted, PAIRS), **streams}, size=4)


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    [found] = Cases({0: (seeded_apart, {})}, size=1)[0]
    return found


@pytest.mark.parametrize("name", LAYOUTS)
def test_ranks_read_and_draw_the_same_whatever_their_seeds(name: str, on_two: Cases, alone: dict[str, Any]) -> None:
    """The first case starts the ranks of all: about 10 s."""
    first, second = on_two[name]
    assert first == second
    assert not first["told"], "that the first rank draws more between two epochs does no harm"
    assert first["samples"][:4] == alone["samples"][:4], "the numbers are those of one device"
    assert np.allclose(first["outputs"][:4], alone["outputs"][:4])


def test_a_rank_that_draws_more_than_its_peers_is_told_of_once(on_two: Cases) -> None:
    first, second = on_two["draws"]
    assert first["samples"] == second["samples"]
    assert first["numbers"] == second["numbers"]
    [told] = first["told"]
    assert "have to draw the same random numbers" in told
    assert first["files"] == [__file__]
    assert second["told"] == [told]


def test_samples_that_differ_between_peers_are_refused(on_two: Cases) -> None:
    assert all("need the same samples, but have read different ones" in told for told in on_two["differing"])


def test_ranks_that_share_layers_count_once(on_two: Cases, on_four: Cases) -> None:
    once = {"right": 8, "rows": 8, "mean": 6.0, "text": "ab"}
    for found in on_two["counted", "layers"]:
        assert found == {**once, "mine": [0, 1, 2, 3], "objects": ["a"]}
    shares = [found.pop("mine") for found in on_four["counted"]]
    assert shares == [[0, 1], [0, 1], [2, 3], [2, 3]]
    assert on_four["counted"] == [{**once, "objects": ["a", "a"]}] * 4


def parts_counted() -> tuple[float, float]:
    """How many tokens of 2 sequences are right, counted in parts, and how many sequences, which no rank cuts."""
    own = accelerator(SEQUENCES)
    tokens = sequences = 0
    loader = own.prepare(DataLoader(torch.ones(2, 4)))
    for batch in loader:
        with own.maybe_context_parallel([batch], [1]):
            tokens += batch.sum()
    tokens = own.reduce(tokens).item()
    for batch in loader:
        sequences += len(batch)
    return tokens, own.reduce(torch.tensor(sequences)).item()


def test_ranks_that_share_sequences_count_once_unless_they_have_parts(on_two: Cases) -> None:
    assert on_two["parts"] == [(8, 2)] * 2
    assert on_two["counted", "sequences"] == on_two["counted", "layers"]


def test_pairs_that_share_layers_read_different_samples(on_four: Cases) -> None:
    """The first case starts four ranks: about 10 s."""
    first, second, third, fourth = on_four["pairs"]
    assert first == second
    assert third == fourth
    read = [number for each in (first, third) for batch in each["samples"][:2] for number in batch[0]]
    assert sorted(read) == list(range(8))
    assert first["seeded"] != third["seeded"]


@pytest.mark.parametrize("dispatch", [None, True, False])
def test_a_stream_is_shared_among_pairs_that_share_layers(dispatch: bool | None, on_four: Cases) -> None:
    first, second, third, fourth = on_four[dispatch]
    assert first == second
    assert third == fourth
    assert first[1] == third[1]
    assert sorted(number for batch in first[1] for number in batch) == list(range(8))


def test_a_stream_with_an_order_of_its_own_is_one_for_all_that_share_layers(on_two: Cases) -> None:
    first, second = on_two["stream"]
    assert first == second
    assert sorted(number for [number] in first[0]) == list(range(8))
