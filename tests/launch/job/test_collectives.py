"""Where ranks disagree about their collectives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from notebook_accel.events import Collective
from notebook_accel.launch.job.collectives import mismatch

BEGUN = Collective("0", "default_pg", 118, "all_reduce", "float[1048576]", 4 * 2**20, 1.0, done=False)
DONE = replace(BEGUN, number=117, done=True)
BROADCAST = replace(BEGUN, operation="broadcast")


def test_a_rank_in_another_collective_is_named() -> None:
    recorded = {0: [DONE, BROADCAST], 1: [DONE, BEGUN], 2: [DONE, BROADCAST]}
    assert mismatch(recorded) == ("rank 1 is in all_reduce #118 of 4 MB, the others in broadcast #118 of 4 MB")
    assert mismatch({0: [BEGUN], 1: [BROADCAST]}) == (
        "rank 0 is in all_reduce #118 of 4 MB, rank 1 in broadcast #118 of 4 MB"
    )


def test_one_that_has_gone_on_after_another_collective_is_named_too() -> None:
    """The root of a broadcast waits for nobody."""
    gone_on = [replace(BROADCAST, done=True), replace(BEGUN, number=119)]
    assert mismatch({0: gone_on, 1: [BEGUN]}).startswith("rank 0 is in broadcast #118 of 4 MB, rank 1 in all")


@pytest.mark.parametrize(
    ("size", "text"), [(4, "4 B"), (1536, "1.5 kB"), (1010 * 2**10, "1010 kB"), (3 * 2**30, "3 GB")]
)
def test_different_sizes_are_a_mismatch_where_all_ranks_give_the_same(size: int, text: str) -> None:
    found = mismatch({0: [BEGUN], 1: [replace(BEGUN, size=size)]})
    assert found == f"rank 0 is in all_reduce #118 of 4 MB, rank 1 in all_reduce #118 of {text}"
    gather = replace(BEGUN, operation="all_gather")
    assert mismatch({0: [gather], 1: [replace(gather, size=size)]}) == ""


def test_ranks_that_have_not_called_what_the_others_wait_in_are_named() -> None:
    assert mismatch({0: [DONE, BEGUN], 1: [DONE], 2: [DONE, BEGUN], 3: []}) == (
        "ranks 1,3 have not called all_reduce #118 of 4 MB, which ranks 0,2 wait in"
    )
    first = replace(BEGUN, number=1)
    assert mismatch({0: [first], 1: []}) == "", "it may still set up"


def test_ranks_that_agree_or_wait_for_nothing_have_no_mismatch() -> None:
    assert mismatch({0: [DONE, BEGUN], 1: [DONE, BEGUN]}) == ""
    assert mismatch({0: [DONE], 1: [replace(DONE, operation="broadcast")]}) == "", "both have gone on"
    assert mismatch({0: [], 1: []}) == ""


def test_groups_are_numbered_by_themselves() -> None:
    pair = replace(BEGUN, group="7", group_label="undefined", number=3)
    assert mismatch({0: [pair], 1: [pair, DONE], 2: [DONE]}) == "", "rank 2 may be in no other group"
    found = mismatch({0: [pair], 1: [replace(pair, operation="barrier")], 2: [DONE]})
    assert found == "rank 0 is in all_reduce #3 of 4 MB, rank 1 in barrier #3 of 4 MB, in the process group 7"
    assert mismatch({0: [BROADCAST, replace(BEGUN, between_two=True)], 1: [BROADCAST]}) == ""
