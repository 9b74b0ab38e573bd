"""A prepared loader in one process: the plain loader's batches, and where the loop is."""

import contextlib
import gc
import os
import pickle
import random
from typing import Any

import accelerate
import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    get_worker_info,
)

from notebook_accel.data_loader import (
    BatchSamplerShard,
    DataLoaderDispatcher,
    DataLoaderShard,
    DataLoaderStateMixin,
    IterableDatasetShard,
    SkipBatchSampler,
    SkipDataLoader,
)
from notebook_accel.errors import ConfigurationError
from notebook_accel.train.data.prepare import prepare_data_loader, skip_first_batches
from notebook_accel.train.data.samplers import SeedableRandomSampler
from notebook_accel.train.ranks.gradient_state import GradientState
from tests.train.data.loaders import (
    DividedStream,
    Encoding,
    Pair,
    ReadyBatches,
    Sample,
    SizedStream,
    Stream,
    numbers,
    pairs,
    read,
)

META = torch.device("meta")


LOADERS = {
    "in order": lambda: numbers(11),
    "shuffled": lambda: numbers(11, shuffle=True),
    "shuffled by a generator": lambda: numbers(11, shuffle=True, generator=torch.Generator().manual_seed(3)),
    "without the last": lambda: numbers(11, drop_last=True),
    "batch sampler": lambda: DataLoader(torch.arange(11), batch_sampler=BatchSampler(range(10, 0, -1), 3, False)),
    "lists of batches": lambda: DataLoader(torch.arange(11), batch_sampler=[[3, 1], [2], [5, 6, 7]]),
    "sampler of batches": lambda: DataLoader(
        torch.arange(11), sampler=BatchSampler(SequentialSampler(range(11)), 4, False), batch_size=None
    ),
    "ready-made batches": lambda: DataLoader(ReadyBatches(4), batch_size=None),
    "iterable": lambda: DataLoader(Stream(11), batch_size=4),
    "iterable of known length": lambda: DataLoader(SizedStream(11), batch_size=4, drop_last=True),
    "iterable of ready-made batches": lambda: DataLoader(Stream(4), batch_size=None),
    "empty": lambda: numbers(0),
    "of one batch": lambda: numbers(3),
    "workers": lambda: numbers(11, num_workers=2, shuffle=True),
}


@pytest.mark.parametrize("name", LOADERS)
def test_one_process_reads_what_the_plain_loader_reads(name: str) -> None:
    make = LOADERS[name]
    torch.manual_seed(0)
    plain = [read(loader) for loader in [make()] for _ in range(2)]
    drawn = torch.rand(1)
    torch.manual_seed(0)
    prepared = prepare_data_loader(make(), put_on_device=True)
    assert [read(prepared) for _ in range(2)] == plain
    assert torch.rand(1) == drawn, "the random state must end where the plain loop leaves it"


def test_accelerate_draws_the_same_order() -> None:
    found = []
    for prepare in (prepare_data_loader, accelerate.data_loader.prepare_data_loader):
        for options in ({}, {"use_seedable_sampler": True}, {"use_seedable_sampler": True, "data_seed": 5}):
            torch.manual_seed(1)
            loader = prepare(numbers(50, shuffle=True), **options)
            found.append([read(loader) for _ in range(3)])
    assert found[:3] == found[3:]
    assert len({str(epochs) for epochs in found[:3]}) == 3


def test_only_the_last_batch_is_the_end() -> None:
    loader, state = prepare_data_loader(numbers(11)), GradientState()
    for _ in range(2):
        seen = [(state.end_of_dataloader, state.in_dataloader, state.active_dataloader is loader) for _ in loader]
        assert seen == [(False, True, True), (False, True, True), (True, True, True)]
        assert not state.in_dataloader


def test_a_loop_that_is_left_leaves_no_active_loader() -> None:
    loader, state = prepare_data_loader(numbers(11)), GradientState()
    for _ in loader:
        break
    assert not state.in_dataloader
    with contextlib.suppress(ZeroDivisionError):
        for batch in loader:
            batch[0] / 0 if batch[0] else 1 // 0
    gc.collect()
    assert not state.in_dataloader
    assert len(read(loader)) == 3


def test_a_dataset_that_fails_leaves_no_active_loader() -> None:
    def fail(_: Any) -> None:
        raise KeyError("sample")

    loader = prepare_data_loader(numbers(11, collate_fn=fail))
    with pytest.raises(KeyError, match="sample"):
        read(loader)
    assert not GradientState().in_dataloader


def test_the_inner_of_two_loops_is_the_active_one() -> None:
    outer, inner, state = prepare_data_loader(numbers(8)), prepare_data_loader(numbers(3)), GradientState()
    for _ in outer:
        for _ in inner:
            assert state.active_dataloader is inner
            assert state.end_of_dataloader
        assert state.active_dataloader is outer
    assert state.active_dataloader is None


def ends(loop: Any) -> list[bool]:
    """Whether each step of a loop, which yields where it uses its batches, is the last of a loader."""
    state, found = GradientState(), []
    for _ in loop:
        state.turn += 1  # as accumulate, backward, and gather_for_metrics do
        found.append(state.end_of_dataloader)
    return found


def prepared(*batches: int) -> list[Any]:
    return [prepare_data_loader(numbers(4 * count)) for count in batches]


def test_of_loaders_that_are_read_together_any_can_be_at_its_end() -> None:
    for lengths in ((2, 4), (4, 2), (1, 3), (3, 1)):
        one, other = prepared(*lengths)
        shorter = min(lengths)
        assert ends(zip(one, other, strict=False)) == [False] * (shorter - 1) + [True]
        assert not GradientState().in_dataloader


def test_a_loop_within_a_loop_has_its_own_end() -> None:
    outer, inner = prepared(1, 2)
    assert ends(None for _ in outer for _ in inner) == [False, True]
    pair = prepared(3, 3)
    state, found = GradientState(), []
    for _ in zip(*pair, strict=True):
        found.append(ends(inner))
        assert {id(each) for each in state.loaders_in_use} == {id(each) for each in pair}
        found.append(state.end_of_dataloader)
    assert found == [[False, True], False, [False, True], False, [False, True], True]


def test_of_loaders_that_are_read_in_turn_that_whose_batch_is_used_counts() -> None:
    one, other = prepared(2, 3)

    def in_turn() -> Any:
        first, second = iter(one), iter(other)
        for _ in range(2):
            yield next(first)
            yield next(second)
        yield next(second)

    assert ends(in_turn()) == [False, False, True, False, True]


def test_a_loader_that_begins_again_beside_another_counts() -> None:
    outer, inner = prepared(4, 2)

    def beside() -> Any:
        again = iter(inner)
        for _ in outer:
            try:
                yield next(again)
            except StopIteration:
                again = iter(inner)
                yield next(again)

    assert ends(beside()) == [False, True, False, True]


@pytest.mark.smoke
def test_it_is_a_data_loader_and_shows_what_the_plain_one_has() -> None:
    plain = numbers(11, shuffle=True, num_workers=0, pin_memory=False)
    loader = prepare_data_loader(plain)
    assert isinstance(loader, DataLoader)
    assert len(loader) == 3
    for name in ("dataset", "sampler", "batch_sampler", "batch_size", "collate_fn", "num_workers", "drop_last"):
        assert getattr(loader, name) is getattr(plain, name)
    assert (loader.total_batch_size, loader.total_dataset_length) == (4, 11)
    with pytest.raises(AttributeError, match="unheard_of"):
        loader.unheard_of  # noqa: B018


def test_the_class_of_the_loader_stays() -> None:
    class Doubling(DataLoader):
        def __iter__(self) -> Any:
            return (2 * batch for batch in super().__iter__())

    assert read(prepare_data_loader(Doubling(torch.arange(3), batch_size=2))) == [[0, 2], [4]]


def test_preparing_twice_is_preparing_once() -> None:
    loader = prepare_data_loader(numbers(11))
    assert prepare_data_loader(loader) is loader


def test_preparing_leaves_the_plain_loader_as_it_was() -> None:
    plain = numbers(11, shuffle=True)
    before = dict(plain.__dict__)
    prepare_data_loader(
        plain, num_processes=2, process_index=1, use_seedable_sampler=True, device=torch.device("cuda"),
        put_on_device=True, non_blocking=True,
    )  # fmt: skip
    assert plain.__dict__ == before


def test_it_pickles_even_in_the_middle_of_an_epoch() -> None:
    loader = prepare_data_loader(numbers(11), num_processes=2, process_index=0)
    iterator = iter(loader)
    next(iterator)
    again = pickle.loads(pickle.dumps(loader))
    assert read(again) == [[0, 1, 2, 3], [8, 9, 10, 0]]


# Batches on their way


def test_a_batch_on_the_cpu_is_not_touched() -> None:
    batch = {"inputs": torch.ones(2)}
    loader = prepare_data_loader(numbers(4, collate_fn=lambda _: batch), put_on_device=True)
    assert all(found is batch for found in loader)


BATCHES = {
    "a tensor": torch.ones(2),
    "a tuple": (torch.ones(2), "name"),
    "a named tuple": Pair(torch.ones(2), torch.ones(3)),
    "a mapping in a list": [{"a": torch.ones(2)}, 3],
    "a dataclass": Sample(torch.ones(2), "name"),
    "an encoding": Encoding({"ids": torch.ones(2)}, encodings="kept"),
}


@pytest.mark.parametrize("name", BATCHES)
def test_batches_of_any_structure_move(name: str) -> None:
    from notebook_accel.train.tensors import pytree

    batch = BATCHES[name]
    loader = prepare_data_loader(numbers(12, collate_fn=lambda _: batch), device=META, put_on_device=True)
    for found in loader:
        assert type(found) is type(batch)
        assert [tensor.device for tensor in pytree.leaves(found)] == [META] * len(pytree.leaves(batch))
        assert getattr(found, "encodings", "kept") == "kept"


def test_batches_stay_on_their_device_by_default() -> None:
    assert all(batch.device.type == "cpu" for batch in prepare_data_loader(numbers(11), device=META))


def test_a_moved_batch_is_read_one_ahead_like_any_other() -> None:
    loader, state = prepare_data_loader(pairs(11), device=META, put_on_device=True), GradientState()
    assert [state.end_of_dataloader for _ in loader] == [False, False, True]


# Epochs


def test_epochs_are_counted_and_can_be_set() -> None:
    loader = prepare_data_loader(numbers(20, shuffle=True), use_seedable_sampler=True)
    first, second = read(loader), read(loader)
    assert (first != second, loader.iteration) == (True, 2)
    loader.set_epoch(0)
    assert [read(loader), read(loader)] == [first, second]
    loader.set_epoch(1)
    assert read(loader) == second


def test_an_epoch_that_was_left_counts() -> None:
    loader = prepare_data_loader(numbers(20, shuffle=True), use_seedable_sampler=True)
    epochs = [read(loader) for _ in range(3)]
    loader.set_epoch(0)
    for left in epochs[:2]:
        assert next(iter(loader)).tolist() == left[0]
    assert read(loader) == epochs[2]
    loader.set_epoch(1)
    next(iter(loader))
    loader.set_epoch(1)
    assert read(loader) == epochs[1], "its number was set again"


def test_parts_of_a_stream_that_workers_read_are_each_divided_and_padded() -> None:
    plain = DataLoader(DividedStream(10), num_workers=2)
    loaders = [prepare_data_loader(plain, num_processes=2, process_index=rank) for rank in range(2)]
    found = [read(loader) for loader in loaders]
    assert len(found[0]) == len(found[1]) == 6, "both workers have 5 samples, and each repeats one"
    assert {number for rank in found for batch in rank for number in batch} == set(range(10))
    assert [loader.remainder for loader in loaders] == [-1, -1], "it isn't known where the repeated ones are"


class Listening(RandomSampler):
    epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


def test_epochs_are_passed_on_to_samplers_and_datasets() -> None:
    sampler, stream = Listening(range(8)), Stream(8)
    for plain in (
        DataLoader(torch.arange(8), sampler=sampler, batch_size=2),
        DataLoader(torch.arange(8), batch_sampler=BatchSampler(sampler, 2, False)),
        DataLoader(stream, batch_size=2),
    ):
        for ranks in (1, 2):
            loader = prepare_data_loader(plain, num_processes=ranks, process_index=0)
            loader.set_epoch(7)
            assert (stream.epoch if plain.dataset is stream else sampler.epoch) == 7
            read(loader)
            read(loader)
            assert (stream.epoch if plain.dataset is stream else sampler.epoch) == 8


class Numbered(Dataset[Any]):
    """The epoch of which its copy knows, and what it draws."""

    epoch: Any = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch += epoch - self.epoch

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        drawn = torch.randint(10**6, ()).item(), random.randrange(10**6), np.random.randint(10**6)
        return torch.tensor([os.getpid(), self.epoch, *drawn, get_worker_info().seed])


def test_workers_that_persist_learn_of_the_next_epoch() -> None:
    data = Numbered()
    loader = prepare_data_loader(DataLoader(data, num_workers=1, persistent_workers=True), put_on_device=False)
    seen = [[row.tolist()[0] for row in loader] for _ in range(2)]
    assert [row[1] for epoch in seen for row in epoch] == [0, 0, 1, 1]
    assert len({row[2] for epoch in seen for row in epoch}) == 4, "no epoch draws what another has drawn"
    data.epoch = torch.tensor(0).share_memory_()  # as data sets of `datasets` keep it
    loader = prepare_data_loader(DataLoader(data, num_workers=1, persistent_workers=True), put_on_device=False)
    seen = [[row.tolist()[0] for row in loader] for _ in range(2)]
    assert [row[1] for epoch in seen for row in epoch] == [0, 0, 1, 1]
    assert len({row[0] for epoch in seen for row in epoch}) == 1, "its workers stay"


def test_workers_of_other_ranks_draw_other_numbers() -> None:
    plain = DataLoader(Numbered(), num_workers=1, worker_init_fn=lambda worker: torch.rand(worker))
    found = []
    for index in (None, 0, 1, 1):
        torch.manual_seed(0)
        ranks = {} if index is None else {"num_processes": 2, "process_index": index}
        loader = prepare_data_loader(plain, put_on_device=False, **ranks)
        found.append([row.tolist()[0][2:] for row in loader])
    alone, first, second, again = found
    assert first == [alone[0]]
    assert second == again, "a seed decides what is drawn"
    assert not set(second[0]) & {number for row in alone for number in row}


# Skipping


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("name", [name for name in LOADERS if "shuffled" not in name and name != "workers"])
def test_skipping_leaves_out_the_first_batches(name: str, prepared: bool) -> None:
    loader = prepare_data_loader(LOADERS[name]()) if prepared else LOADERS[name]()
    batches = read(loader)
    for skipped in range(4):
        shorter = skip_first_batches(loader, skipped)
        assert read(shorter) == batches[skipped:]
        with contextlib.suppress(TypeError):  # an iterable dataset without a length
            assert len(shorter) == len(batches[skipped:])
        assert read(loader) == batches


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_skipping_batches_of_a_stream_that_workers_read(workers: int) -> None:
    plain = DataLoader(Stream(10), batch_size=2, num_workers=workers)
    batches = read(plain)
    for loader in (plain, prepare_data_loader(plain)):
        assert read(skip_first_batches(loader, 3)) == batches[3:]


def test_skipped_batches_are_not_read() -> None:
    class Noticing(torch.utils.data.Dataset):
        read: list[int]

        def __len__(self) -> int:
            return 9

        def __getitem__(self, index: int) -> int:
            self.read.append(index)
            return index

    dataset = Noticing()
    for loader in (DataLoader(dataset, batch_size=2), prepare_data_loader(DataLoader(dataset, batch_size=2))):
        dataset.read = []
        read(skip_first_batches(loader, 3))
        assert dataset.read == [6, 7, 8]


def test_what_was_skipped_can_be_prepared() -> None:
    loader = prepare_data_loader(skip_first_batches(numbers(11, 2), 2), num_processes=2, process_index=1)
    assert read(loader) == [[6, 7], [10, 4]]
    with pytest.raises(ConfigurationError, match="prepare the loader first"):
        prepare_data_loader(skip_first_batches(DataLoader(Stream(11)), 2))


def test_a_skipping_loader_goes_on_with_the_epochs_of_the_whole_one() -> None:
    loader = prepare_data_loader(numbers(20, shuffle=True), use_seedable_sampler=True)
    first, second = read(loader), read(loader)
    loader.set_epoch(0)
    assert read(skip_first_batches(loader, 2)) == first[2:]
    assert read(loader) == second


def test_a_loader_of_anything_is_a_prepared_loader() -> None:
    assert type(prepare_data_loader(DataLoader(TensorDataset(torch.ones(3))))) is DataLoaderShard


def test_prepared_loaders_and_samplers_are_of_the_classes_that_users_test_for() -> None:
    plain, own = numbers(8, 2), prepare_data_loader(numbers(8, 2))
    assert isinstance(own, DataLoaderShard)
    assert isinstance(own, DataLoaderStateMixin)
    assert not isinstance(own, (DataLoaderDispatcher, SkipDataLoader))
    assert isinstance(skip_first_batches(own, 1), DataLoaderShard)
    skipping = skip_first_batches(plain, 1).batch_sampler
    assert isinstance(skipping, SkipBatchSampler)
    assert (skipping.skip_batches, skipping.total_length, len(skipping)) == (1, 4, 3)
    assert list(SkipBatchSampler([[0], [1], [2]], 2)) == [[2]]
    sharded = prepare_data_loader(plain, num_processes=2, process_index=0).batch_sampler
    assert isinstance(sharded, BatchSamplerShard)
    stream = prepare_data_loader(DataLoader(Stream(8)), num_processes=2, process_index=0)
    assert isinstance(stream.dataset, IterableDatasetShard)
    assert isinstance(skip_first_batches(DataLoader(Stream(8)), 1), SkipDataLoader)


def test_a_seedable_order_is_another_in_each_epoch_and_follows_from_its_number() -> None:
    sampler = SeedableRandomSampler(range(20), data_seed=5)
    epochs = [list(sampler) for _ in range(3)]
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    again = SeedableRandomSampler(range(20), data_seed=5)
    again.set_epoch(2)
    assert list(again) == epochs[2]
    loader = prepare_data_loader(numbers(20, 20, shuffle=True), use_seedable_sampler=True, data_seed=5)
    assert [read(loader) for _ in range(3)] == [[epoch] for epoch in epochs]


def test_a_loader_of_a_data_set_reads_all_of_it() -> None:
    made = DataLoaderShard(torch.arange(5), batch_size=2, rng_types=["torch"], device=torch.device("cpu"))
    assert [(batch.tolist(), made.end_of_dataloader, made.remainder) for batch in made] == [
        ([0, 1], False, 1),
        ([2, 3], False, 1),
        ([4], True, 1),
    ]
    assert (made.total_batch_size, made.total_dataset_length, len(made)) == (2, 5, 3)
    assert [batch.tolist() for batch in DataLoaderDispatcher(Stream(3), batch_size=2)] == [[0, 1], [2]]
    skipping = SkipDataLoader(torch.arange(5), batch_size=2, skip_batches=1)
    assert [batch.tolist() for batch in skipping] == [batch.tolist() for batch in skipping] == [[2, 3], [4]]
    with pytest.raises(TypeError, match=r"it wraps a DataLoader. Create DataLoader\(dataset, batch_size=2"):
        DataLoaderShard(DataLoader(torch.arange(5)), batch_size=2)
    with pytest.raises(TypeError, match="no argument 'batch_siz'"):
        DataLoaderShard(torch.arange(5), batch_siz=2)
