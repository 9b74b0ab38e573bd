"""What rank 0 sends, and what becomes of what it cannot send or read."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from notebook_accel import RankError
from notebook_accel.errors import ConfigurationError
from notebook_accel.train.data import DataLoaderDispatcher, prepare_data_loader
from tests.train.conftest import Cases, Ranks
from tests.train.data.loaders import Encoding, Pair, Sample, Stream, numbers


def dispatched(plain: Any, **how: Any) -> Any:
    return prepare_data_loader(plain, dispatch_batches=True, put_on_device=True, **how)


def collate(samples: list[torch.Tensor]) -> Any:
    """A batch of all that a batch can be made of."""
    numbers = torch.stack(samples)
    return {
        "numbers": numbers,
        "names": [f"sample {number}" for number in numbers.tolist()],
        "nested": (Pair(numbers.float(), numbers.bool()), Sample(numbers.to(torch.bfloat16), "x"), []),
        "encoding": Encoding({"ids": numbers[:, None] * torch.ones(2)}, "kept"),
        "scalar": numbers.sum(),
        "complex": numbers * 1j,
        "empty": torch.zeros(len(numbers), 0),
        "sparse": torch.eye(2).to_sparse(),
        "none": None,
    }


def batches() -> list[Any]:
    return list(dispatched(numbers(16, collate_fn=collate)))


def test_batches_of_any_structure_reach_every_rank(on_two: Cases) -> None:
    for rank, found in enumerate(on_two[batches]):
        for turn, batch in enumerate(found):
            start = turn * 8 + rank * 4
            expected = collate(list(torch.arange(start, start + 4)))
            assert batch["names"] == expected["names"]
            assert type(batch["nested"][0]) is Pair
            assert batch["nested"][1].name == "x"
            assert batch["encoding"].encodings == "kept"
            assert batch["none"] is None
            assert torch.equal(batch["sparse"].to_dense(), torch.eye(2))
            for get in (
                lambda tree: tree["numbers"],
                lambda tree: tree["nested"][0].inputs,
                lambda tree: tree["nested"][0].labels,
                lambda tree: tree["nested"][1].inputs,
                lambda tree: tree["encoding"]["ids"],
                lambda tree: tree["scalar"],
                lambda tree: tree["complex"],
                lambda tree: tree["empty"],
            ):
                assert torch.equal(get(batch), get(expected))
                assert get(batch).dtype == get(expected).dtype


def of_various_lengths() -> list[Any]:
    lengths = iter([1, 2, 3, 5, 8, 13])
    loader = dispatched(
        numbers(12, 2, collate_fn=lambda samples: torch.stack(samples)[:, None] * torch.ones(next(lengths)))
    )
    return [batch.shape for batch in loader]


def test_shapes_may_change_from_batch_to_batch(on_two: Cases) -> None:
    assert on_two[of_various_lengths] == [[(2, 1), (2, 3), (2, 8)], [(2, 2), (2, 5), (2, 13)]]


def in_place() -> tuple[list[Any], list[Any]]:
    loader = dispatched(numbers(16, collate_fn=lambda samples: (torch.stack(samples), torch.stack(samples))))
    found = []
    for one, other in loader:
        one.add_(100)
        found.append((one.tolist(), other.tolist()))
    return found


def test_a_rank_may_change_its_batch(on_two: Cases) -> None:
    first, second = on_two[in_place]
    assert first[0] == ([100, 101, 102, 103], [0, 1, 2, 3])
    assert second[1] == ([112, 113, 114, 115], [12, 13, 14, 15])


def cut(batch: Any, rows: slice, process_index: int, num_processes: int) -> Any:
    return {"rows": batch["rows"][rows], "all": batch["rows"], "rank": process_index, "of": num_processes}


def with_a_function() -> list[Any]:
    plain = DataLoader(Stream(8), batch_size=2, collate_fn=lambda samples: {"rows": torch.stack(samples)})
    return list(dispatched(plain, slice_fn_for_dispatch=cut))


def test_a_function_can_cut_the_batches(on_two: Cases) -> None:
    for rank, found in enumerate(on_two[with_a_function]):
        assert [batch["rows"].tolist() for batch in found] == [[2 * rank, 2 * rank + 1], [4 + 2 * rank, 5 + 2 * rank]]
        assert found[1]["all"].tolist() == [4, 5, 6, 7]
        assert (found[0]["rank"], found[0]["of"]) == (rank, 2)


def only_rank_0_reads() -> tuple[type, int]:
    read = []

    class Noticing(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> int:
            read.append(index)
            return index

    loader = dispatched(DataLoader(Noticing(), batch_size=2))
    list(loader)
    return type(loader), len(read)


def test_only_rank_0_reads(on_two: Cases) -> None:
    assert on_two[only_rank_0_reads] == [(DataLoaderDispatcher, 8), (DataLoaderDispatcher, 0)]


def left_early() -> list[int]:
    loader = dispatched(numbers(40))
    for batch in loader:
        if batch[0] >= 8:
            break
    return [batch[0].item() for batch in loader]


def test_a_loop_can_be_left_by_all(on_two: Cases) -> None:
    assert on_two[left_early] == [[0, 8, 16, 24, 32], [4, 12, 20, 28, 36]]


@pytest.fixture(scope="module")
def on_two() -> Cases:
    functions = [batches, of_various_lengths, in_place, with_a_function, only_rank_0_reads, left_early]
    return Cases({function: (function,) for function in functions})


def broken() -> None:
    class Broken(Stream):
        def __iter__(self) -> Any:
            yield from super().__iter__()
            raise OSError("the disk is gone")

    for _ in dispatched(DataLoader(Broken(16), batch_size=4)):
        pass


def unjoinable() -> None:
    list(dispatched(numbers(5, 2, collate_fn=lambda samples: [str(sample) for sample in samples])))


def unpicklable() -> None:
    list(dispatched(numbers(8, 2, collate_fn=lambda samples: (number for number in samples))))


@pytest.mark.parametrize(
    ("function", "cause", "message"),
    [
        (broken, OSError, "the disk is gone"),
        (unjoinable, ConfigurationError, "pass DataLoaderConfiguration(dispatch_batches=False)"),
        (unpicklable, TypeError, "generator"),
    ],
)
def test_what_rank_0_cannot_read_or_send_ends_all_ranks(
    ranks: Ranks, function: Any, cause: type[Exception], message: str
) -> None:
    with pytest.raises(RankError) as failed:
        ranks(function)
    summaries = {failure.ranks: failure.summary for failure in failed.value.failures}
    assert message in summaries[(0,)]
    assert "rank 0, which reads for all ranks" in summaries.get((1,), "rank 0, which reads for all ranks")
    assert failed.value.rank in (0, 1)


# What cannot work


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"dispatch_batches": True}, "dispatch_batches=True needs put_on_device=True"),
        ({"slice_fn_for_dispatch": cut}, "slice_fn_for_dispatch has no effect here"),
        ({"data_seed": 3}, "data_seed has no effect without use_seedable_sampler=True"),
        (
            {"dispatch_batches": True, "put_on_device": True, "num_processes": 2, "process_index": 0},
            "not among 2 of them",
        ),
        ({"split_batches": True, "num_processes": 3, "process_index": 0}, "make it a multiple of 3, such as 3"),
        ({"rng_types": ["dice"]}, "dice"),
    ],
)
def test_settings_that_cannot_work_are_refused(how: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prepare_data_loader(numbers(8), **how)


def test_a_share_of_a_share_is_refused() -> None:
    data = torch.arange(8)
    sampler = torch.utils.data.DistributedSampler(data, num_replicas=2, rank=1)
    with pytest.raises(ConfigurationError, match="DistributedSampler already selects each rank's share"):
        prepare_data_loader(DataLoader(data, sampler=sampler), num_processes=2, process_index=1)


def test_batches_that_the_dataset_makes_are_not_cut_without_rank_0() -> None:
    for plain in (numbers(8, None), DataLoader(Stream(8), batch_size=None)):
        with pytest.raises(ConfigurationError, match="pass dispatch_batches=True, so that rank 0 cuts them"):
            prepare_data_loader(plain, num_processes=2, process_index=1, split_batches=True)


def test_torchdata_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torchdata.stateful_dataloader", None)
    with pytest.raises(ConfigurationError, match="pip install torchdata"):
        prepare_data_loader(numbers(8), use_stateful_dataloader=True)
