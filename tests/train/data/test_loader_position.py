"""A loader goes on where it was, in the order that it had."""

from __future__ import annotations

import io
import pickle
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.data.loader import DataLoaderShard
from notebook_accel.train.data.prepare import prepare_data_loader, skip_first_batches
from notebook_accel.train.ranks.seeds import set_seed
from tests.train.conftest import Ranks
from tests.train.data.loaders import Stream, numbers, read

SHUFFLES = {
    "torch's own state": ({}, {}),
    "a generator": ({"generator": True}, {}),
    "a seed": ({}, {"use_seedable_sampler": True}),
    "workers": ({"num_workers": 1}, {}),
}


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def loader(plain: dict[str, Any], how: dict[str, Any]) -> Any:
    options = {**plain, "generator": torch.Generator().manual_seed(4)} if plain.get("generator") else plain
    return prepare_data_loader(numbers(22, shuffle=True, **options), put_on_device=True, rng_types=["generator"], **how)


def run(plain: dict[str, Any], how: dict[str, Any], stop: tuple[int, int] | None = None, kept: Any = None) -> list[Any]:
    """Three epochs, with numbers drawn in each step; ends after the step `stop`, or begins after that of `kept`."""
    set_seed(1 if kept is None else 99)  # a process that resumes has drawn other numbers before
    data = loader(plain, how)
    found: list[Any] = []
    first, skipped = 0, 0
    if kept is not None:
        (first, skipped), state, random_state = kept
        data.load_state_dict(state)
        torch.set_rng_state(random_state)
    for epoch in range(first, 3):
        source = data
        if epoch == first and skipped and not data.use_stateful_dataloader:
            source = skip_first_batches(data, skipped)
        for step, batch in enumerate(source, start=skipped if epoch == first else 0):
            found.append((epoch, step, batch.tolist(), torch.rand(()).item()))
            if (epoch, step) == stop:
                state = through_a_file(data.state_dict())
                return [
                    found,
                    ((epoch + (step == len(data) - 1), (step + 1) % len(data)), state, torch.get_rng_state()),
                ]
    return found


def interrupted(plain: dict[str, Any], how: dict[str, Any], stop: tuple[int, int]) -> bool:
    whole = run(plain, how)
    before, kept = run(plain, how, stop)
    return before + run(plain, how, kept=kept) == whole


@pytest.mark.parametrize("stop", [(0, 0), (0, 3), (0, 5), (1, 2), (1, 5)], ids=str)
@pytest.mark.parametrize("name", SHUFFLES)
def test_one_process_goes_on_as_if_nothing_had_happened(name: str, stop: tuple[int, int]) -> None:
    assert interrupted(*SHUFFLES[name], stop)


def all_interrupted() -> list[tuple[str, Any, tuple[int, int]]]:
    wrong = []
    for name, (plain, how) in SHUFFLES.items():
        for more in ({}, {"dispatch_batches": True}, {"split_batches": True}):
            for stop in ((0, 0), (1, 2)):
                if not interrupted(plain, how | more, stop):
                    wrong.append((name, more, stop))
    return wrong


def test_ranks_go_on_as_if_nothing_had_happened(ranks: Ranks) -> None:
    assert ranks(all_interrupted) == [[], []]


def test_a_loop_that_was_left_can_be_resumed_or_begun_anew() -> None:
    data = loader({}, {})
    set_seed(3)
    first = [batch.tolist() for _, batch in zip(range(2), data, strict=False)]
    state = through_a_file(data.state_dict())
    rest = read(skip_first_batches(_loaded(state), 2))
    assert sorted(number for batch in first + rest for number in batch) == list(range(22))
    set_seed(3)
    anew = read(loader({}, {}))
    set_seed(3)
    assert read(_loaded(state)) == anew, "without skipping, the epoch follows from the current state"


def test_an_epoch_that_was_left_counts_after_a_checkpoint_too() -> None:
    how = {"use_seedable_sampler": True, "data_seed": 5}
    epochs = [read(each) for each in [loader({}, how)] for _ in range(3)]
    data = loader({}, how)
    read(data)
    next(iter(data))
    state = through_a_file(data.state_dict())
    assert read(_loaded(state, how)) == epochs[2]
    resumed = _loaded(state, how)
    assert read(skip_first_batches(resumed, 1)) == epochs[1][1:]
    assert read(resumed) == epochs[2]


def _loaded(state: dict[str, Any], how: dict[str, Any] | None = None) -> Any:
    data = loader({}, how or {})
    random_state = torch.get_rng_state()
    data.load_state_dict(state)
    assert torch.equal(torch.get_rng_state(), random_state)
    return data


# Stateful loaders


class Counting(IterableDataset):
    """A stream that knows where it is, and how often it was read."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.at = 0
        self.reads = 0

    def __iter__(self) -> Any:
        while self.at < self.length:
            self.at += 1
            self.reads += 1
            yield torch.tensor(self.at - 1)
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


STATEFUL = {
    "in order": lambda: numbers(22),
    "shuffled": lambda: numbers(22, shuffle=True),
    "workers": lambda: numbers(22, shuffle=True, num_workers=1),
    "stream": lambda: DataLoader(Stream(22), batch_size=4),
    "stream that knows": lambda: DataLoader(Counting(22), batch_size=4),
}


def stateful(name: str, how: dict[str, Any], stop: int | None) -> bool:
    """Whether two epochs, interrupted after a batch or after the first epoch, are those of a whole run."""

    def fresh(seed: int) -> Any:
        set_seed(seed)
        plain = STATEFUL[name]()
        return prepare_data_loader(
            plain, put_on_device=True, use_stateful_dataloader=True, rng_types=["generator"], **how
        )

    whole = fresh(1)
    expected = [read(whole), read(whole)]
    data = fresh(1)
    before, state, random_state = [], {}, torch.get_rng_state()
    for number, batch in enumerate(data):
        before.append(batch.tolist())
        if number == stop:
            state, random_state = through_a_file(data.state_dict()), torch.get_rng_state()
            break
    if stop is None:
        state, random_state = through_a_file(data.state_dict()), torch.get_rng_state()
    again = fresh(99)
    again.load_state_dict(state)
    torch.set_rng_state(random_state)
    return [before if stop is None else before + read(again), read(again)] == expected


@pytest.mark.parametrize("stop", [0, 2, 4, 5, None])
@pytest.mark.parametrize("name", STATEFUL)
def test_a_stateful_loader_goes_on_by_itself(name: str, stop: int) -> None:
    assert stateful(name, {}, stop)


def all_stateful() -> list[Any]:
    ways = ({"dispatch_batches": False}, {"dispatch_batches": True}, {"dispatch_batches": False, "split_batches": True})
    cases = [(name, how, stop) for name in STATEFUL for how in ways for stop in (0, 2, None)]
    # Workers take long to start, and where one rank goes on with them, all do.
    return [case for case in cases if (case[0] != "workers" or case[2] == 2) and not stateful(*case)]


def test_stateful_loaders_of_ranks_go_on_by_themselves(ranks: Ranks) -> None:
    assert ranks(all_stateful) == [[], []]


@pytest.mark.python
def test_a_stream_that_knows_where_it_is_is_not_read_again() -> None:
    def fresh() -> tuple[Counting, Any]:
        dataset = Counting(22)
        return dataset, prepare_data_loader(
            DataLoader(dataset, batch_size=4), num_processes=2, process_index=1, use_stateful_dataloader=True
        )

    _, data = fresh()
    next(iterator := iter(data))
    state = through_a_file(data.state_dict())
    del iterator
    dataset, again = fresh()
    again.load_state_dict(state)
    assert read(again) == [[12, 13, 14, 15], [20, 21, 0, 1]]
    assert dataset.reads == 22 - 8


def test_a_stateful_loader_is_not_skipped() -> None:
    data = prepare_data_loader(numbers(8), use_stateful_dataloader=True)
    assert skip_first_batches(data, 0) is data
    with pytest.raises(ConfigurationError, match="iterate over the loader itself"):
        skip_first_batches(data, 1)


@pytest.mark.filterwarnings("ignore:'set_vital'")
def test_a_stateful_loader_of_the_users_own_stays_stateful() -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    data = prepare_data_loader(StatefulDataLoader(torch.arange(8), batch_size=2))
    assert data.use_stateful_dataloader
    next(iter(data))
    again = prepare_data_loader(StatefulDataLoader(torch.arange(8), batch_size=2))
    again.load_state_dict(data.state_dict())
    assert read(again) == [[2, 3], [4, 5], [6, 7]]


@pytest.mark.filterwarnings("ignore:'set_vital'")
def test_a_stateful_loader_is_one_of_torchdatas() -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    data = prepare_data_loader(numbers(8), use_stateful_dataloader=True)
    for each in (data, pickle.loads(pickle.dumps(data))):
        assert isinstance(each, StatefulDataLoader)
        assert isinstance(each, DataLoaderShard)
        assert read(each) == read(prepare_data_loader(numbers(8)))
    assert not isinstance(prepare_data_loader(numbers(8)), StatefulDataLoader)


@pytest.mark.filterwarnings("ignore:'set_vital'")
def test_a_stateful_loader_takes_a_position_that_torchdata_saved() -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    plain = StatefulDataLoader(torch.arange(8), batch_size=2)
    batches = iter(plain)
    next(batches)
    state = plain.state_dict()
    data = prepare_data_loader(DataLoader(torch.arange(8), batch_size=2), use_stateful_dataloader=True)
    data.load_state_dict(state)
    assert read(data) == [[2, 3], [4, 5], [6, 7]]
    assert read(data) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    with pytest.raises(ConfigurationError, match="use_stateful_dataloader=True"):
        prepare_data_loader(numbers(8)).load_state_dict(state)
