"""What rank 0 sends, and what becomes of what it cannot send or read."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from notebook_accel import PartialState, RankError
from notebook_accel.errors import ConfigurationError
from notebook_accel.train.data import uneven_inputs
from notebook_accel.train.data.dispatching_loader import DataLoaderDispatcher
from notebook_accel.train.data.prepare import prepare_data_loader
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


def of_a_data_set() -> list[Any]:
    PartialState(cpu=True)
    return [batch.tolist() for batch in DataLoaderDispatcher(torch.arange(6), batch_size=2)]


def test_a_loader_can_be_made_of_a_data_set(on_two: Cases) -> None:
    assert on_two[of_a_data_set] == [[[0, 1], [4]], [[2, 3], [5]]]


def left_early() -> list[int]:
    loader = dispatched(numbers(40))
    for batch in loader:
        if batch[0] >= 8:
            break
    return [batch[0].item() for batch in loader]


def test_a_loop_can_be_left_by_all(on_two: Cases) -> None:
    assert on_two[left_early] == [[0, 8, 16, 24, 32], [4, 12, 20, 28, 36]]


def every_kind(samples: list[torch.Tensor]) -> Any:
    """A batch that says in many ways which samples it has."""
    ids = torch.stack(samples)
    own = ids.tolist()
    return {
        "tensor": ids,
        "texts": [f"t{number}" for number in own],
        "bytes": tuple(b"%d" % number for number in own),
        "array": np.array(own),
        "records": [{"id": number} for number in own],
        "pair": Pair(ids, own),
        "sample": Sample(ids, "of all"),
        "encoding": Encoding({"ids": ids}, own),
        "deque": deque(own),
        "images": [torch.full((5, 1), number) for number in own],
    }


def last_of_every_kind() -> dict[str, Any]:
    (*_, last) = dispatched(DataLoader(Stream(11), batch_size=4, collate_fn=every_kind))
    return last


def test_whatever_has_an_entry_for_each_sample_is_divided_like_the_tensors(on_two: Cases) -> None:
    for found, own in zip(on_two[last_of_every_kind], ([8, 9], [10, 0]), strict=True):
        assert found["tensor"].tolist() == own
        assert found["texts"] == [f"t{number}" for number in own]
        assert found["bytes"] == tuple(b"%d" % number for number in own)
        assert found["array"].tolist() == own
        assert found["records"] == [{"id": number} for number in own]
        assert (found["pair"].inputs.tolist(), found["pair"].labels) == (own, own)
        assert (found["sample"].inputs.tolist(), found["sample"].name) == (own, "of all")
        assert (found["encoding"]["ids"].tolist(), found["encoding"].encodings) == (own, own)
        assert found["deque"] == deque(own)
        assert [int(image[0, 0]) for image in found["images"]] == own


def padded(samples: list[torch.Tensor]) -> dict[str, Any]:
    """A batch that is as wide as its greatest number."""
    ids = torch.stack(samples)
    return {
        "ids": ids,
        "wide": torch.zeros(len(ids), int(ids.max()) + 1),
        "texts": [str(each) for each in ids.tolist()],
    }


class Ready(IterableDataset):
    """Batches of 2, 3, 4, … rows, of various widths."""

    def __init__(self, batches: int) -> None:
        self.batches = batches

    def __iter__(self) -> Any:
        return (torch.full((2 + number, 3 + number), number) for number in range(self.batches))


def of_ragged_batches(plain: DataLoader[Any], metrics: Any) -> tuple[list[Any], list[Any]]:
    seen, shapes = [], []
    for batch in dispatched(plain):
        shapes.append(tuple((batch["wide"] if isinstance(batch, dict) else batch).shape))
        seen += uneven_inputs.gather_for_metrics(metrics(batch))
    return shapes, seen


def ragged(length: int) -> tuple[list[Any], list[Any]]:
    plain = DataLoader(Stream(length), batch_size=4, collate_fn=padded)
    return of_ragged_batches(plain, lambda batch: batch["texts"])


def ready(batches: int) -> tuple[list[Any], list[Any]]:
    return of_ragged_batches(DataLoader(Ready(batches), batch_size=None), lambda batch: batch[:, 0].int().tolist())


RAGGED = {
    (ragged, 15): ([(4, 4), (4, 12)], [(4, 8), (4, 15)]),  # the short batch repeats samples of its own
    (ragged, 11): ([(4, 4), (2, 11)], [(4, 8), (2, 11)]),
    (ready, 4): ([(2, 3), (4, 5)], [(3, 4), (5, 6)]),
    (ready, 3): ([(2, 3), (4, 5)], [(3, 4), (4, 5)]),
}


@pytest.mark.parametrize(("make", "length"), RAGGED)
def test_batches_that_cannot_be_joined_are_shared_whole_and_metrics_see_each_sample_once(
    on_two: Cases, make: Any, length: int
) -> None:
    found = on_two[make, length]
    assert tuple(shapes for shapes, _ in found) == RAGGED[make, length]
    numbers = range(length) if make is ragged else [number for number in range(length) for _ in range(2 + number)]
    for _, seen in found:
        assert sorted(map(int, seen)) == list(numbers)


def of_unclear_rows() -> list[Any]:
    """Three images of three channels can be cut along either; the words of a batch belong to all of its samples."""
    images = DataLoader(Stream(9), batch_size=3, collate_fn=lambda samples: [s.expand(3, 2, 2) for s in samples])
    words = DataLoader(
        Stream(6), batch_size=2, collate_fn=lambda samples: {"ids": torch.stack(samples), "words": ["a", "b", "c"]}
    )
    return [list(dispatched(images))[-1], list(dispatched(words))[-1]]


def test_batches_whose_samples_are_unclear_are_shared_whole(on_two: Cases) -> None:
    for images, words in on_two[of_unclear_rows]:
        assert [int(image[0, 0, 0]) for image in images] == [6, 7, 8]
        assert {image.shape for image in images} == {(3, 2, 2)}
        assert (words["ids"].tolist(), words["words"]) == ([4, 5], ["a", "b", "c"])


@pytest.fixture(scope="module")
def on_two() -> Cases:
    functions = [batches, of_various_lengths, in_place, with_a_function, only_rank_0_reads, of_a_data_set, left_early]
    functions += [last_of_every_kind, of_unclear_rows]
    return Cases({function: (function,) for function in functions} | {case: case for case in RAGGED})


def broken() -> None:
    class Broken(Stream):
        def __iter__(self) -> Any:
            yield from super().__iter__()
            raise OSError("the disk is gone")

    for _ in dispatched(DataLoader(Broken(16), batch_size=4)):
        pass


def undividable() -> None:
    """In the first round, since later ones need not be read to know it."""
    batch = {"ids": torch.arange(4), "words": ["a", "b", "c"]}
    for _ in dispatched(DataLoader(Stream(8), batch_size=4, collate_fn=lambda _: batch), split_batches=True):
        raise AssertionError


def unjoinable() -> None:
    list(dispatched(DataLoader(Ready(4), batch_size=None), slice_fn_for_dispatch=cut))


def unpicklable() -> None:
    list(dispatched(numbers(8, 2, collate_fn=lambda samples: (number for number in samples))))


@pytest.mark.parametrize(
    ("function", "cause", "message"),
    [
        (broken, OSError, "the disk is gone"),
        (undividable, ConfigurationError, "batch['ids'] has 4 rows, and batch['words'] has 3"),
        (unjoinable, ConfigurationError, "joins the batches of a round for slice_fn_for_dispatch"),
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
