"""Each rank's share, against the documented rule everywhere, and against Accelerate where Accelerate follows it."""

import pickle
from typing import Any

import pytest
from accelerate.data_loader import BatchSamplerShard as AccelerateShard
from accelerate.data_loader import IterableDatasetShard as AccelerateIterableShard
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, IterableDataset, SequentialSampler

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.data.iterable_shard import IterableDatasetShard
from notebook_accel.train.data.sharding import BatchSamplerShard, PremadeBatchShard

LENGTHS = st.integers(0, 40)
SIZES = st.integers(1, 6)
RANKS = st.integers(1, 5)


def batches_of(length: int, size: int, *, drop_last: bool = False) -> BatchSampler:
    return BatchSampler(SequentialSampler(range(length)), size, drop_last)


def shards(sampler: Any, ranks: int, cls: Any = BatchSamplerShard, **options: Any) -> list[Any]:
    return [cls(sampler, ranks, rank, **options) for rank in range(ranks)]


class Lists:
    """A batch sampler that yields what it is given."""

    def __init__(self, batches: list[list[int]], batch_size: int | None = None) -> None:
        self.batches = batches
        if batch_size is not None:
            self.batch_size = batch_size

    def __iter__(self) -> Any:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


class Stream(IterableDataset):
    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Any:
        return iter(range(self.length))

    def __len__(self) -> int:
        return self.length


# By the rule


def test_the_example_of_the_documentation_holds() -> None:
    first, second = shards(batches_of(5, 2), 2)
    assert (list(first), list(second)) == ([[0, 1], [4, 0]], [[2, 3], [1, 2]])


@given(length=LENGTHS, size=SIZES, ranks=RANKS)
def test_even_ranks_in_turn_read_the_dataset_on_and_on(length: int, size: int, ranks: int) -> None:
    found = [list(shard) for shard in shards(batches_of(length, size), ranks)]
    total = size * ranks
    rounds = -(-length // total)
    endless = [index % length for index in range(rounds * total)] if length else []
    assert [index for turn in zip(*found, strict=True) for batch in turn for index in batch] == endless
    assert all(len(batch) == size for batches in found for batch in batches)


@given(length=LENGTHS, size=SIZES, ranks=RANKS)
def test_even_ranks_that_split_read_the_dataset_on_and_on(length: int, size: int, ranks: int) -> None:
    total = size * ranks
    found = [list(shard) for shard in shards(batches_of(length, total), ranks, split_batches=True)]
    endless = [index % length for index in range(-(-length // total) * total)] if length else []
    assert [index for turn in zip(*found, strict=True) for part in turn for index in part] == endless


@given(length=LENGTHS, size=SIZES, ranks=RANKS, split=st.booleans(), drop_last=st.booleans())
def test_uneven_ranks_share_each_sample_once(length: int, size: int, ranks: int, split: bool, drop_last: bool) -> None:
    sampler = batches_of(length, size * ranks if split else size, drop_last=drop_last)
    found = [list(shard) for shard in shards(sampler, ranks, split_batches=split, even_batches=False)]
    indices = [index for batches in found for batch in batches for index in batch]
    assert len(set(indices)) == len(indices)
    total = size * ranks
    expected = length // total * total if drop_last else length
    assert len(indices) == expected
    assert all(batches for batches in found) or length < total


@given(length=LENGTHS, size=SIZES, ranks=RANKS, split=st.booleans(), even=st.booleans(), drop_last=st.booleans())
def test_a_shard_knows_how_much_of_its_last_round_is_not_repeated(
    length: int, size: int, ranks: int, split: bool, even: bool, drop_last: bool
) -> None:
    total = size * ranks
    sampler = batches_of(length, total if split else size, drop_last=drop_last)
    for shard in shards(sampler, ranks, split_batches=split, even_batches=even):
        assert shard.remainder == -1
        list(shard)
        assert shard.remainder == (length % total if even and not drop_last else 0)


@given(length=LENGTHS, size=SIZES, ranks=RANKS, split=st.booleans(), even=st.booleans(), drop_last=st.booleans())
def test_a_shard_knows_its_length(length: int, size: int, ranks: int, split: bool, even: bool, drop_last: bool) -> None:
    sampler = batches_of(length, size * ranks if split else size, drop_last=drop_last)
    for shard in shards(sampler, ranks, split_batches=split, even_batches=even):
        assert len(list(shard)) == len(shard)


@given(sizes=st.lists(st.integers(1, 5), max_size=12), ranks=RANKS)
def test_batches_of_various_sizes_go_round_when_they_need_not_be_even(sizes: list[int], ranks: int) -> None:
    batches = [[number] * size for number, size in enumerate(sizes)]
    for rank, shard in enumerate(shards(Lists(batches), ranks, even_batches=False)):
        assert list(shard) == batches[rank::ranks]


def test_batches_of_unknown_size_can_be_split() -> None:
    batches = Lists([[0, 1, 2, 3], [4, 5, 6], [7]])
    first, second = shards(batches, 2, split_batches=True, even_batches=False)
    assert (list(first), list(second)) == ([[0, 1], [4, 5], [7]], [[2, 3], [6]])


@given(length=LENGTHS, ranks=RANKS)
def test_batches_that_the_dataset_has_ready_made_are_shared_whole(length: int, ranks: int) -> None:
    sampler = SequentialSampler(range(length))
    found = [PremadeBatchShard(sampler, num_processes=ranks, process_index=rank) for rank in range(ranks)]
    read = [list(shard) for shard in found]
    rounds = -(-length // ranks)
    assert [index for turn in zip(*read, strict=True) for index in turn] == [
        index % length for index in range(rounds * ranks)
    ]
    assert [shard.remainder for shard in found] == [length % ranks] * ranks
    assert [len(shard) for shard in found] == [rounds] * ranks


@given(length=LENGTHS, size=SIZES, ranks=RANKS, split=st.booleans(), even=st.booleans(), drop_last=st.booleans())
def test_an_iterable_dataset_is_shared_as_a_sampler_is(
    length: int, size: int, ranks: int, split: bool, even: bool, drop_last: bool
) -> None:
    options = {"split_batches": split, "even_batches": even}
    whole = size * ranks if split else size
    for rank in range(ranks):
        stream = IterableDatasetShard(Stream(length), whole, drop_last, ranks, rank, **options)
        shard = BatchSamplerShard(batches_of(length, whole, drop_last=drop_last), ranks, rank, **options)
        samples = list(stream)
        assert samples == [index for batch in shard for index in batch]
        assert len(samples) == len(stream)
        assert stream.remainder == (length % (size * ranks) if even and not drop_last else 0)


# By Accelerate


@given(length=LENGTHS, size=SIZES, ranks=RANKS, split=st.booleans(), even=st.booleans(), drop_last=st.booleans())
def test_samplers_are_shared_as_by_accelerate(
    length: int, size: int, ranks: int, split: bool, even: bool, drop_last: bool
) -> None:
    sampler = batches_of(length, size * ranks if split else size, drop_last=drop_last)
    options = {"split_batches": split, "even_batches": even}
    ours, theirs = shards(sampler, ranks, **options), shards(sampler, ranks, AccelerateShard, **options)
    assert [list(shard) for shard in ours] == [list(shard) for shard in theirs]
    if even or not split:  # otherwise, Accelerate also counts a last batch of which a rank gets no part
        assert [len(shard) for shard in ours] == [len(shard) for shard in theirs]


@given(sizes=st.lists(st.integers(1, 5), max_size=12), ranks=RANKS)
def test_batches_of_unknown_size_are_shared_whole_as_by_accelerate(sizes: list[int], ranks: int) -> None:
    sampler = Lists([[number] * size for number, size in enumerate(sizes)])
    ours, theirs = shards(sampler, ranks), shards(sampler, ranks, AccelerateShard)
    assert [list(shard) for shard in ours] == [list(shard) for shard in theirs]
    assert [len(shard) for shard in ours] == [len(shard) for shard in theirs]
    left = len(sizes) % ranks
    assert {shard.remainder for shard in ours} == {sum(sizes[len(sizes) - left :])}


@given(length=LENGTHS, size=SIZES, ranks=RANKS, split=st.booleans(), drop_last=st.booleans())
def test_iterable_datasets_are_shared_as_by_accelerate(
    length: int, size: int, ranks: int, split: bool, drop_last: bool
) -> None:
    whole = size * ranks if split else size
    for rank in range(ranks):
        given_ = (Stream(length), whole, drop_last, ranks, rank, split)
        assert list(IterableDatasetShard(*given_)) == list(AccelerateIterableShard(*given_))


# What cannot work


@pytest.mark.parametrize("cls", [BatchSamplerShard, IterableDatasetShard])
def test_a_batch_that_cannot_be_split_is_refused_with_a_size_that_can(cls: Any) -> None:
    whole = (batches_of(8, 5),) if cls is BatchSamplerShard else (Stream(8), 5)
    with pytest.raises(ConfigurationError, match="batch_size of 5 does not allow: make it a multiple of 2, such as 4"):
        cls(*whole, num_processes=2, split_batches=True)


def test_batches_of_unknown_size_cannot_be_split_evenly() -> None:
    with pytest.raises(
        ConfigurationError, match=r"Lists has no batch_size: .*DataLoaderConfiguration\(even_batches=False"
    ):
        BatchSamplerShard(Lists([[0, 1]]), 2, 0, split_batches=True)
    shard = BatchSamplerShard(Lists([[0, 1]]), 2, 0, split_batches=True, even_batches=False)
    with pytest.raises(ConfigurationError, match="Lists has no batch_size"):
        shard.even_batches = True


@pytest.mark.parametrize("split", [False, True])
def test_a_short_batch_before_the_last_is_noticed(split: bool) -> None:
    shard = BatchSamplerShard(Lists([[0, 1], [2], [3, 4]], batch_size=2), 2, 0, split_batches=split)
    with pytest.raises(ConfigurationError, match=r"Lists.* has yielded a shorter one before"):
        list(shard)


def test_shards_pickle() -> None:
    shard = pickle.loads(pickle.dumps(BatchSamplerShard(batches_of(5, 2), 2, 1)))
    assert list(shard) == [[2, 3], [1, 2]]
    stream = pickle.loads(pickle.dumps(IterableDatasetShard(Stream(5), 2, False, 2, 1)))
    assert list(stream) == [2, 3, 1, 2]
