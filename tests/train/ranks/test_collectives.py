from typing import Any, NamedTuple

import pytest
import torch

from notebook_accel import (
    DistributedOperationException,
    PartialState,
    RankError,
    broadcast,
    broadcast_object_list,
    gather,
    gather_object,
    pad_across_processes,
    reduce,
)
from notebook_accel.errors import ConfigurationError
from notebook_accel.train.ranks import communicator
from notebook_accel.utils import CannotPadNestedTensorWarning, copy_tensor_to_devices
from tests.train.conftest import Cases, Ranks

SMALL, LARGEST = communicator.MIN_SIZE, communicator.MAX_SIZE
LARGE = LARGEST  # of a type of several bytes, so that it fits into no first message


class Pair(NamedTuple):
    left: Any
    right: Any


SMALL_INTEGERS = [torch.tensor([True]), torch.tensor([200], dtype=torch.uint8)]


def exchanged(size: int) -> dict[str, Any]:
    rank = PartialState().process_index
    own = torch.arange(size, dtype=torch.float64) + 100 * rank
    flags, short = torch.tensor([rank == 0, True]), torch.full((2, 1), rank, dtype=torch.bfloat16)
    tree = gather({"a": (own, [short]), "b": Pair(flags, torch.tensor(rank))})
    sent = torch.full((size,), float(rank))
    empty = gather(torch.empty(0, 3))
    return {
        "own": tree["a"][0],
        "short": tree["a"][1][0].tolist(),
        "flags": tree["b"].left.tolist(),
        "scalar": tree["b"].right.tolist(),
        "empty": tuple(empty.shape),
        "sum": reduce(own, "sum"),
        "mean": reduce({"x": own})["x"],
        "scaled": reduce(own, "sum", scale=0.5),
        "max": reduce(own - 2 * rank * own, "max"),
        "none": reduce(own, "none"),
        "small": [reduce(each, how).tolist() for each in SMALL_INTEGERS for how in ("sum", "mean", "max")],
        "sent": (broadcast(sent, from_process=1), sent),
    }


def copied() -> list[Any]:
    rank = PartialState().process_index
    own = torch.tensor([1, 2], dtype=torch.int16) if rank == 1 else None
    errors = []
    for given in (own if rank == 0 else None, torch.zeros(1)):
        try:
            copy_tensor_to_devices(given)
        except DistributedOperationException as error:
            errors.append(str(error))
    found = copy_tensor_to_devices(own)
    return [found.tolist(), str(found.dtype), [error.partition(", but ")[2] for error in errors]]


def test_a_tensor_of_one_rank_goes_to_all(ranks: Ranks) -> None:
    refused = ["0 ranks have passed a tensor", "2 ranks have passed a tensor"]
    assert ranks(copied) == [[[1, 2], "torch.int16", refused]] * 2
    assert copy_tensor_to_devices(torch.ones(1)).tolist() == [1]


@pytest.mark.parametrize("size", [3, LARGE])
@pytest.mark.parametrize("ranks_", [2, 3])
def test_nested_tensors_are_exchanged_however_large(size: int, ranks_: int, on_ranks: dict[int, Cases]) -> None:
    results = on_ranks[ranks_][exchanged, size]
    assert len(results) == ranks_
    owns = [torch.arange(size, dtype=torch.float64) + 100 * rank for rank in range(ranks_)]
    for rank, found in enumerate(results):
        assert torch.equal(found["own"], torch.cat(owns))
        assert found["short"] == [[float(other)] for other in range(ranks_) for _ in range(2)]
        assert found["flags"] == [other == 0 or at == 1 for other in range(ranks_) for at in range(2)]
        assert found["scalar"] == list(range(ranks_))
        assert found["empty"] == (0, 3)
        assert torch.equal(found["sum"], sum(owns))
        torch.testing.assert_close(found["mean"], sum(owns) / ranks_)
        assert torch.equal(found["scaled"], sum(owns) / 2)
        assert torch.equal(found["max"], torch.stack([(1 - 2 * other) * own for other, own in enumerate(owns)]).amax(0))
        assert torch.equal(found["none"], owns[rank])
        assert found["small"] == [[ranks_], [1], [True], [200 * ranks_], [pytest.approx(200)], [200]]
        assert all(torch.equal(each, torch.ones(size)) for each in found["sent"])


def objects(size: int) -> tuple[Any, ...]:
    rank = PartialState().process_index
    text = "x" * size * (rank + 1)
    return [len(each) for each in gather_object([text, ""])], broadcast_object_list([rank, text], from_process=1)[0]


def of_changing_sizes() -> bool:
    rank = PartialState().process_index
    sizes = [1, SMALL, SMALL, 3, LARGEST, 5, 3 * SMALL, 3 * SMALL, 2]
    return all(
        torch.equal(gather(torch.full((size,), rank)), torch.tensor([0, 1]).repeat_interleave(size)) for size in sizes
    )


def test_first_messages_grow_and_shrink_on_all_ranks_alike(on_ranks: dict[int, Cases]) -> None:
    assert on_ranks[2][(of_changing_sizes,)] == [True, True]


OBJECT_SIZES = [0, 10, 3 * SMALL, 2 * LARGEST]


@pytest.mark.parametrize("size", OBJECT_SIZES)
def test_objects_are_exchanged_however_large(size: int, on_ranks: dict[int, Cases]) -> None:
    assert on_ranks[2][objects, size] == [([size, 0, 2 * size, 0], 1)] * 2


def padded() -> list[list[Any]]:
    rank = PartialState().process_index
    own = torch.ones(rank + 1, 2)
    first, wide = pad_across_processes((own, own.T), pad_index=-1, pad_first=True), pad_across_processes(own.T, dim=1)
    return [*(each.tolist() for each in first), wide.tolist(), pad_across_processes(torch.tensor(3), dim=0).tolist()]


def test_tensors_are_padded_to_the_longest(on_ranks: dict[int, Cases]) -> None:
    short, long = on_ranks[2][(padded,)]
    assert short == [[[-1, -1], [1, 1]], [[1], [1]], [[1, 0], [1, 0]], 3]
    assert long == [[[1, 1], [1, 1]], [[1, 1], [1, 1]], [[1, 1], [1, 1]], 3]


def padded_from_the_end() -> list[Any]:
    """A tensor's last dimension, and a tensor that is shorter than the dimension is far from the end."""
    rank = PartialState().process_index
    return [
        pad_across_processes(torch.ones(2, rank + 1), dim=-1, pad_index=7).tolist(),
        pad_across_processes(torch.ones(rank + 1, 1), dim=-2, pad_index=7, pad_first=True).tolist(),
        pad_across_processes(torch.ones(3), dim=-2).tolist(),
    ]


def test_a_dimension_may_be_counted_from_the_end(on_ranks: dict[int, Cases]) -> None:
    short, long = on_ranks[2][(padded_from_the_end,)]
    assert short == [[[1, 7], [1, 7]], [[7], [1]], [1, 1, 1]]
    assert long == [[[1, 1], [1, 1]], [[1], [1]], [1, 1, 1]]


def padded_with_other_dimensions() -> str:
    try:
        pad_across_processes(
            [torch.zeros(1), torch.zeros(1, 1, 6) if PartialState().process_index else torch.zeros(1, 5)]
        )
    except DistributedOperationException as error:
        return str(error)
    return "nothing is raised"


def test_tensors_of_different_dimensions_are_not_padded(on_ranks: dict[int, Cases]) -> None:
    for message in on_ranks[2][(padded_with_other_dimensions,)]:
        assert message.startswith("pad_across_processes needs tensors of the same number of dimensions")
        assert "rank 0: (1,), (1, 5)\n" in message
        assert "rank 1: (1,), (1, 1, 6)\n" in message


def mismatched(operation: str, size: int) -> None:
    rank = PartialState().process_index
    {"gather": gather, "reduce": reduce, "broadcast": broadcast}[operation](torch.zeros(size + rank, 2))


def mismatch(operation: str, size: int) -> str:
    try:
        mismatched(operation, size)
    except DistributedOperationException as error:
        return str(error)
    return "nothing is raised"


OPERATIONS = ["gather", "reduce", "broadcast"]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("size", [3, LARGE])
def test_shapes_that_differ_are_named_instead_of_hanging(operation: str, size: int, on_ranks: dict[int, Cases]) -> None:
    for message in on_ranks[2][mismatch, operation, size]:
        assert f"rank 0: {operation} float32 ({size}, 2)" in message
        assert f"rank 1: {operation} float32 ({size + 1}, 2)" in message


def test_shapes_that_differ_are_the_cause_of_what_the_launch_raises(ranks: Ranks) -> None:
    with pytest.raises(RankError) as failed:
        ranks(mismatched, "gather", 3)
    assert isinstance(failed.value.__cause__, DistributedOperationException)


@pytest.fixture(scope="module")
def on_ranks() -> dict[int, Cases]:
    """All that the ranks exchange, by their number; each case is named by its call."""
    nested = [(exchanged, size) for size in (3, LARGE)]
    on_two: list[tuple[Any, ...]] = [
        *nested,
        *((objects, size) for size in OBJECT_SIZES),
        *((mismatch, operation, size) for operation in OPERATIONS for size in (3, LARGE)),
        *((of_other_layouts, debug) for debug in (False, True)),
        *((function,) for function in (of_changing_sizes, padded, padded_from_the_end, padded_with_other_dimensions)),
    ]
    return {2: Cases({call: call for call in on_two}), 3: Cases({call: call for call in nested}, size=3)}


def rows(layout: torch.layout) -> torch.Tensor:
    """A nested tensor of a row more on rank 1 than on rank 0."""
    return torch.nested.nested_tensor(
        [torch.ones(2 + at) for at in range(1 + PartialState().process_index)], layout=layout
    )


def of_other_layouts(debug: bool) -> list[str]:
    """Also what `pad_across_processes` makes of them. With `debug`, ranks compare them first."""
    PartialState().debug = debug
    said = []
    for tensor in (rows(torch.jagged), rows(torch.strided), torch.eye(2).to_sparse()):
        for operation in (gather, reduce, broadcast):
            try:
                operation({"x": tensor})
            except TypeError as error:
                said.append(str(error))
    for layout in (torch.jagged, torch.strided):
        nested = rows(layout)
        with pytest.warns(CannotPadNestedTensorWarning, match="leaves nested tensors as they are"):
            kept, padded = pad_across_processes([nested, torch.ones(1 + PartialState().process_index)])
        assert kept is nested
        said.append(str(len(padded)))
    PartialState().debug = False
    return said


@pytest.mark.parametrize("debug", [False, True])
def test_nested_and_sparse_tensors_are_refused_or_stay(debug: bool, on_ranks: dict[int, Cases]) -> None:
    found = on_ranks[2][of_other_layouts, debug]
    assert found[0] == found[1]
    *refused, one, other = found[0]
    assert [each.split(":")[0] for each in refused] == [
        f"{name} doesn't take {what}"
        for what in (*["nested tensors, whose rows differ in length"] * 2, "tensors of the layout sparse_coo")
        for name in ("gather", "reduce", "broadcast")
    ]
    assert "gather(torch.nested.to_padded_tensor(tensor, 0))" in refused[0]
    assert refused[-1].endswith("pass tensor.to_dense()")
    assert one == other == "2"


def test_one_rank_keeps_what_it_has() -> None:
    tensor = torch.tensor([1.0, 3.0])
    for operation in (gather, broadcast, pad_across_processes, gather_object):
        assert operation(tensor) is tensor
    with pytest.warns(CannotPadNestedTensorWarning, match="leaves nested tensors as they are"):
        assert pad_across_processes(nested := rows(torch.jagged)) is nested
    assert broadcast_object_list([1]) == [1]
    assert reduce(tensor, scale=2.0).tolist() == [2, 6]


@pytest.mark.parametrize("value", ["text", {"loss": 1}])
def test_what_would_be_taken_apart_is_not_gathered(value: Any) -> None:
    with pytest.raises(TypeError, match=r"was given a (str|dict), .* as in gather_object\(\[value\]\)"):
        gather_object(value)


@pytest.mark.parametrize("reduction", ["sum", "mean", "max", "none"])
def test_a_reduced_tensor_of_one_rank_can_be_added_to(reduction: str) -> None:
    tensor = torch.tensor([1.0, 3.0])
    total = reduce({"x": tensor}, reduction)["x"]
    total += 1
    assert tensor.tolist() == [1, 3]
    assert total.tolist() == [2, 4]


def test_what_cannot_be_done_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="must be one of sum, mean, max, none"):
        reduce(torch.ones(1), "min")
    with pytest.raises(TypeError, match=r"^reduce takes tensors, .*; found a float: pass torch\.tensor\(value\)"):
        reduce(1.5)  # as on several ranks
    with pytest.raises(ConfigurationError, match="the ranks are 0 to 0"):
        broadcast(torch.ones(1), from_process=1)
