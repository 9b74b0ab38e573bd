"""Prepared loaders on real ranks: who reads what, in one order, and where Accelerate is right, as it does."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from notebook_accel import notebook_launcher
from tests.train.data import cases
from tests.train.data.cases import FLAGS, HOW_SHUFFLED, READY, SHUFFLED, STILL

pytestmark = pytest.mark.early

Found = dict[int, list[dict[Any, Any]]]


@pytest.fixture(scope="module")
def found() -> Found:
    """What each rank has found, by the number of ranks."""
    return {
        size: notebook_launcher(cases.everything, num_processes=size, device="cpu", env={"OMP_NUM_THREADS": 1})
        for size in (1, 2, 3)
    }


def in_turn(ranks: list[list[list[int]]]) -> list[int]:
    """The numbers that ranks have read, batch by batch and rank by rank."""
    turns = itertools.zip_longest(*ranks, fillvalue=())
    return [number for turn in turns for batch in turn for number in batch]


@pytest.mark.parametrize("how", HOW_SHUFFLED, ids=str)
@pytest.mark.parametrize("name", SHUFFLED)
def test_a_shuffled_order_is_one_on_all_ranks(found: Found, name: str, how: dict[str, Any]) -> None:
    ranks = [rank[("shuffled", name, *how)] for rank in found[2]]
    first, second = (in_turn([rank[epoch] for rank in ranks]) for epoch in range(2))
    assert first != second
    if name in ("shuffle", "generator"):
        assert sorted(first[:21]) == sorted(second[:21]) == list(range(21))
        assert first[21:] == first[: len(first) - 21], "what is missing comes from the first samples"


@pytest.mark.parametrize(
    ("name", "how", "size"),
    [case for case in itertools.product(SHUFFLED, HOW_SHUFFLED, (2, 3)) if cases.is_compared(*case)],
    ids=str,
)
def test_a_shuffled_order_is_that_of_accelerate(found: Found, name: str, how: dict[str, Any], size: int) -> None:
    assert len(found[size]) == size
    for rank in found[size]:
        key = ("shuffled", name, *how)
        assert rank[key] == rank[("accelerate", *key)]


@pytest.mark.parametrize("how", [{}, {"use_seedable_sampler": True}], ids=str)
def test_ranks_with_seeds_of_their_own_still_share_one_order(found: Found, how: dict[str, Any]) -> None:
    ranks = [rank[("seeds of their own", *how)] for rank in found[2]]
    for epoch in range(2):
        assert sorted(in_turn([rank[epoch] for rank in ranks])[:21]) == list(range(21))


def test_a_seedable_order_does_not_depend_on_the_number_of_ranks(found: Found) -> None:
    key = ("shuffled", "shuffle", "use_seedable_sampler")
    for epoch in range(2):
        orders = [in_turn([rank[key][epoch] for rank in ranks])[:21] for ranks in found.values()]
        assert orders[0] == orders[1] == orders[2]


@pytest.mark.parametrize(
    ("name", "flags", "size"),
    [
        (name, flags, size)
        for name, flags, size in itertools.product(STILL, FLAGS, (2, 3))
        if flags[2] and cases.is_compared(name, cases.options(flags), size)
    ],
    ids=str,
)
def test_ranks_read_what_accelerate_reads(found: Found, name: str, flags: tuple[bool, ...], size: int) -> None:
    assert len(found[size]) == size
    for rank in found[size]:
        assert rank[(name, *flags, 0)]["batches"] == rank[("accelerate", name, *flags)]


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("name", STILL | READY)
def test_skipping_leaves_out_as_many_batches_of_each_rank(found: Found, name: str, size: int) -> None:
    assert len(found[size]) == size
    for flags in FLAGS:
        if not cases.is_possible(name, cases.options(flags), size):
            continue
        for rank, skipped in itertools.product(found[size], (1, 2)):
            whole, rest = rank[(name, *flags, 0)], rank[(name, *flags, skipped)]
            assert rest["batches"] == whole["batches"][skipped:], flags
            if rest["batches"]:
                assert rest["remainder"] == whole["remainder"], flags


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("name", STILL)
def test_even_ranks_read_as_many_batches_and_uneven_ones_each_sample_once(found: Found, name: str, size: int) -> None:
    for flags in FLAGS:
        if cases.is_possible(name, cases.options(flags), size):
            check_shares(name, flags, [rank[(name, *flags, 0)] for rank in found[size]], size)


def check_shares(name: str, flags: tuple[bool, ...], shares: list[dict[str, Any]], size: int) -> None:
    assert len(shares) == size
    batches = [share["batches"] for share in shares]
    numbers = in_turn(batches)
    dispatch, split, even = flags
    if even:
        assert len({tuple(map(len, each)) for each in batches}) == 1, flags
    else:
        lengths = {"one sample": 1, "whole rounds": 16, "whole round, short batch": 14, "sampler of batches": 21}
        length = lengths.get(name, 11)
        if "without" in name:
            in_a_round = 4 if split else 4 * size
            length -= length % in_a_round
        assert sorted(numbers) == list(range(length)), flags
    for share in shares:
        if even or not (split or dispatch):  # else the number of batches does not tell who gets of the last one
            assert share["length"] in (None, len(share["batches"])), flags


@pytest.mark.parametrize("dispatch", [False, True])
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("name", [name for name in STILL if "without" not in name])
def test_the_remainder_is_what_is_not_repeated_of_the_last_batch(
    found: Found, name: str, dispatch: bool, split: bool
) -> None:
    shares = [rank[name, dispatch, split, True, 0] for rank in found[2]]
    *_, last = zip(*[share["batches"] for share in shares], strict=True)
    read, length = (
        len(in_turn([share["batches"] for share in shares])),
        len(set(in_turn([s["batches"] for s in shares]))),
    )
    fresh = sum(map(len, last)) - (read - length)
    assert {share["remainder"] for share in shares} == {fresh if read > length else 0}


def test_batches_that_the_dataset_makes_are_shared_whole(found: Found) -> None:
    shares = [rank["ready-made batches", False, False, True, 0] for rank in found[2]]
    assert [share["batches"] for share in shares] == [[[0, 1, 2], [6, 7, 8]], [[3, 4, 5], [0, 1, 2]]]
    assert [share["remainder"] for share in shares] == [3, 3]
    for dispatch, split in ((False, False), (True, False), (True, True)):
        shares = [rank["iterable of ready-made batches", dispatch, split, True, 0] for rank in found[2]]
        numbers = in_turn([share["batches"] for share in shares])
        assert numbers[:12] == list(range(12)) if not dispatch or split else sorted(numbers[:12]) == list(range(12))
