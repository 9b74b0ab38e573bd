"""Ranks agree on one point ahead of all of them, however far apart they are."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from torch.distributed import HashStore

from notebook_accel.train.checkpoints.point_agreement import PointAgreement


class Walk(threading.Thread):
    """A rank that passes points, each when it is let, and notes those that were agreed, and why."""

    def __init__(
        self, rank: int, size: int, store: HashStore, points: int, requests: dict[int, str], pace: threading.Barrier
    ) -> None:
        super().__init__(daemon=True)
        self.agreement = PointAgreement(rank, size, lambda: store)
        self.points = points
        self.requests = requests
        self.pace = pace
        self.agreed: list[tuple[int, str]] = []
        self.foreseen: list[int] = []

    def run(self) -> None:
        for point in range(1, self.points + 1):
            self.agreement.advance()
            if self.agreement.reason:
                self.agreed.append((point, self.agreement.reason))
                self.agreement.settle()
            elif self.agreement.is_next:
                self.foreseen.append(point)
            if point in self.requests:
                self.agreement.request(self.requests[point])
            if point % 50 == 0:  # ranks that train together are never far apart
                self.pace.wait(60)
        self.agreement.close()


def walked(size: int, points: int, requests: Callable[[int], dict[int, str]]) -> list[Walk]:
    store = HashStore()
    pace = threading.Barrier(size)
    found = [Walk(rank, size, store, points, requests(rank), pace) for rank in range(size)]
    for each in found:
        each.start()
    for each in found:
        each.join(60)
        assert not each.is_alive(), "a rank waits for ever"
    return found


@pytest.mark.parametrize("size", [1, 2, 4])
def test_all_ranks_agree_on_the_same_point(size: int) -> None:
    walks = walked(size, 20_000, lambda rank: {10: "by the last"} if rank == size - 1 else {})
    assert len(walks[0].agreed) == 1
    assert {tuple(each.agreed) for each in walks} == {tuple(walks[0].agreed)}
    for each in walks:
        assert each.foreseen == [walks[0].agreed[0][0] - 1], "the point before it did not know"


def test_the_first_reason_counts_and_points_are_agreed_one_after_the_other() -> None:
    walks = walked(3, 30_000, lambda rank: dict.fromkeys(range(10 + rank, 20_000, 1000), "now and then"))
    assert len(walks[0].agreed) > 2
    assert {tuple(each.agreed) for each in walks} == {tuple(walks[0].agreed)}


def test_no_rank_waits_for_a_point_that_is_never_reached() -> None:
    for points in range(1, 8):
        walks = walked(2, points, lambda rank, last=points: {last: "too late"} if rank else {})  # type: ignore[misc]
        assert [each.agreed for each in walks] == [[], []]


def test_a_rank_does_not_wait_for_others_whose_store_is_gone() -> None:
    class Gone(HashStore):
        def wait(self, *args: object) -> None:
            raise ConnectionError("the store is gone")

    agreement = PointAgreement(0, 2, Gone)
    agreement.request("never answered")
    for _ in range(10):
        agreement.advance()
    assert not agreement.reason
