"""Ranks divide one order of one data set, or a warning says where they don't."""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, Sampler, Subset, TensorDataset, random_split

from notebook_accel import Accelerator, DataLoaderConfiguration, PartialState, set_seed
from notebook_accel.train.data.prepare import prepare_data_loader
from tests.train.conftest import Cases
from tests.train.data.loaders import Stream, numbers, read

SIZE = 12


class Own(Sampler):
    """A sampler of the user's."""

    def __len__(self) -> int:
        return SIZE

    def draw(self) -> list[int]:
        return list(range(SIZE))

    def __iter__(self) -> Iterator[int]:
        return iter(self.draw())


class ByPython(Own):
    def draw(self) -> list[int]:
        return random.sample(range(SIZE), SIZE)


class ByNumPy(Own):
    def draw(self) -> list[int]:
        return np.random.permutation(SIZE).tolist()


class ByTorch(Own):
    """Draws while the epoch runs, between draws of the training."""

    def __iter__(self) -> Iterator[int]:
        left = list(range(SIZE))
        while left:
            yield left.pop(int(torch.randint(len(left), ())))


class ByOwnGenerator(Own):
    def __init__(self) -> None:
        self.source = random.Random()

    def draw(self) -> list[int]:
        return self.source.sample(range(SIZE), SIZE)


class OwnBatches(Own):
    batch_size = 2

    def __len__(self) -> int:
        return SIZE // 2

    def __iter__(self) -> Iterator[Any]:
        drawn = random.sample(range(SIZE), SIZE)
        return iter([drawn[start : start + 2] for start in range(0, SIZE, 2)])


DRAWN = {
    "by Python": lambda: numbers(SIZE, 2, sampler=ByPython()),
    "by NumPy": lambda: numbers(SIZE, 2, sampler=ByNumPy()),
    "by torch, during the epoch": lambda: numbers(SIZE, 2, sampler=ByTorch()),
    "by a generator of its own": lambda: numbers(SIZE, 2, sampler=ByOwnGenerator()),
    "in batches": lambda: DataLoader(torch.arange(SIZE), batch_sampler=OwnBatches()),
    "read by workers": lambda: numbers(SIZE, 2, sampler=ByPython(), num_workers=1),
}


class RankAwareSampler(Own):
    def draw(self) -> list[int]:
        return list(range(PartialState().process_index, SIZE, 2))


class RankAwareStream(IterableDataset):
    def __init__(self) -> None:
        self.rank = PartialState().process_index

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(torch.arange(self.rank, SIZE, 2))


class SplitStream(RankAwareStream):
    """As `split_dataset_by_node` returns it; rank 0 reads it for all."""

    def __init__(self) -> None:
        super().__init__()
        self._distributed = SimpleNamespace(rank=self.rank, world_size=2)


def random_tensors() -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.rand(SIZE, 2)), batch_size=2)


DIFFERENT = {
    "a sampler that knows its rank": lambda: numbers(SIZE, 2, sampler=RankAwareSampler()),
    "batches by rank": lambda: DataLoader(
        torch.arange(SIZE), batch_sampler=BatchSampler(RankAwareSampler(), 2, drop_last=False)
    ),
    "a stream that knows its rank": lambda: DataLoader(RankAwareStream(), batch_size=2),
    "a stream that a worker reads": lambda: DataLoader(RankAwareStream(), batch_size=2, num_workers=1),
    "a stream of which rank 0 reads its share": lambda: DataLoader(SplitStream(), batch_size=2),
    "a random part of the data": lambda: DataLoader(random_split(torch.arange(SIZE), [8, 4])[0], batch_size=2),
    "data of various lengths": lambda: numbers(SIZE + PartialState().process_index, 2),
    "random data": random_tensors,
}
EQUAL = {
    "in order": lambda: numbers(SIZE, 2),
    "shuffled": lambda: numbers(SIZE, 2, shuffle=True),
    "a stream": lambda: DataLoader(Stream(SIZE), batch_size=2),
    "a stream that rank 0 reads": lambda: DataLoader(Stream(SIZE), batch_size=2),
    "a part of the data": lambda: DataLoader(Subset(torch.arange(SIZE), range(3, 9)), batch_size=2),
    "texts": lambda: DataLoader([f"text {number}" for number in range(SIZE)], batch_size=2),
    "indices of NumPy": lambda: DataLoader(torch.arange(SIZE), sampler=np.arange(SIZE), batch_size=2),
    "anything": lambda: DataLoader([object() for _ in range(SIZE)], batch_size=2, collate_fn=list),
}


def accelerator(dispatches: bool = False) -> Accelerator:
    found = Accelerator(dataloader_config=DataLoaderConfiguration(dispatch_batches=dispatches))
    set_seed(5, device_specific=True)
    return found


def drawn(name: str) -> tuple[list[list[list[int]]], list[float]]:
    """Two epochs, in which each rank draws other numbers for its training, and what it draws afterwards."""
    loader, epochs = accelerator().prepare(DRAWN[name]()), []
    for _ in range(2):
        epoch = []
        for batch in loader:
            epoch.append(batch.tolist())
            torch.rand(PartialState().process_index)
        epochs.append(epoch)
    return epochs, [random.random(), torch.rand(()).item()]


def warnings_of(loaders: str, name: str) -> list[str]:
    dispatches = "rank 0 reads" in name
    loader = accelerator(dispatches).prepare({"different": DIFFERENT, "equal": EQUAL}[loaders][name]())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            for _ in loader:
                pass
    return [str(each.message) for each in caught]


def only_on_the_first() -> list[list[int]]:
    loader = accelerator().prepare(numbers(SIZE, 2))
    return read(loader) if PartialState().is_main_process else []


@pytest.fixture(scope="module")
def on_two() -> Cases:
    cases = {("drawn", name): (drawn, name) for name in DRAWN}
    cases |= {("different", name): (warnings_of, "different", name) for name in DIFFERENT}
    cases |= {("equal", name): (warnings_of, "equal", name) for name in EQUAL}
    return Cases(cases | {"first": (only_on_the_first,)})


@pytest.mark.parametrize("name", DRAWN)
def test_a_sampler_of_the_users_draws_one_order_on_all_ranks(on_two: Cases, name: str) -> None:
    ranks = on_two["drawn", name]
    orders = []
    for first, second in zip(*(epochs for epochs, _ in ranks), strict=True):
        orders.append([number for turn in zip(first, second, strict=True) for batch in turn for number in batch])
        assert sorted(orders[-1]) == list(range(SIZE))
    assert orders[0] != orders[1]
    (_, one), (_, other) = ranks
    assert all(left != right for left, right in zip(one, other, strict=True)), "each rank keeps its own random numbers"


@pytest.mark.parametrize("name", DIFFERENT)
def test_ranks_that_divide_different_samples_are_warned_once_with_the_line(on_two: Cases, name: str) -> None:
    (text,) = itertools.chain(*on_two["different", name])
    assert "the ranks divide different samples: some are read several times, and others never" in text
    assert "accelerator(dispatches).prepare({" in text
    assert "leave the loader out of prepare" in text


@pytest.mark.parametrize("name", EQUAL)
def test_ranks_that_divide_the_same_samples_are_not_warned(on_two: Cases, name: str) -> None:
    assert on_two["equal", name] == [[], []]


def test_a_rank_that_reads_alone_waits_for_no_other(on_two: Cases) -> None:
    assert on_two["first"] == [[[0, 1], [4, 5], [8, 9]], []]


# Streams of several files


class Files(IterableDataset):
    """Like an iterable data set of the `datasets` library: numbers in several files."""

    def __init__(self, files: list[list[int]]) -> None:
        self.files = files
        self.epoch = 0

    @property
    def num_shards(self) -> int:
        return len(self.files)

    def shard(self, num_shards: int, index: int) -> Files:
        return Files(self.files[index::num_shards])

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return itertools.chain(*self.files)


FILES = [[0, 1, 2], [3, 4], [5, 6, 7, 8], [9]]


def test_ranks_read_only_their_own_files_where_their_batches_may_be_uneven() -> None:
    loaders = [
        prepare_data_loader(DataLoader(Files(FILES), batch_size=2), None, 2, rank, even_batches=False)
        for rank in range(2)
    ]
    assert [read(loader) for loader in loaders] == [[[0, 1], [2, 5], [6, 7], [8]], [[3, 4], [9]]]
    assert [loader.remainder for loader in loaders] == [0, 0]
    loaders[0].set_epoch(3)
    assert loaders[0].dataset.dataset.epoch == 3


@pytest.mark.parametrize(("files", "how"), [(FILES, {}), (FILES[:3], {"even_batches": False})])
def test_where_files_cannot_be_shared_each_rank_reads_all_and_says_so(
    files: list[list[int]], how: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    loaders = [prepare_data_loader(DataLoader(Files(files), batch_size=2), None, 2, rank, **how) for rank in range(2)]
    seen = [number for loader in loaders for batch in read(loader) for number in batch]
    assert set(seen) == set(itertools.chain(*files))
    assert f"each of the 2 ranks reads all {len(files)} files of this data set" in caplog.text
