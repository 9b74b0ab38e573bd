"""Ranks agree on one point ahead of all of them, however far apart they are."""

from __future__ import annotations

import itertools
import queue
import random
import threading
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from notebook_accel.train.accelerator.point_agreement import PointAgreement

Requests: TypeAlias = Callable[[int, int], str]
"""Why a rank requests an agreement at a point; empty if it does not."""


class Mail:
    """The messages of a rank, which a thread delivers late; those of each sender in order."""

    def __init__(self, rank: int, everyone: list[Mail], size: int) -> None:
        self.rank = rank
        self.size = size
        self._everyone = everyone
        self.arrived: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._random = random.Random(rank)
        everyone.append(self)

    def on(self, topic: str, receiver: Callable[[int, Any], None]) -> None:
        def deliver() -> None:
            while True:
                rank, value = self.arrived.get()
                time.sleep(self._random.random() * 0.002)
                receiver(rank, value)

        threading.Thread(target=deliver, daemon=True).start()

    def send(self, topic: str, value: Any) -> None:
        for each in self._everyone:
            if each is not self:
                each.arrived.put((self.rank, value))

    def has_ended(self, rank: int) -> bool:
        return False


class Walk(threading.Thread):
    """A rank that passes points, and notes those that were agreed, and why."""

    def __init__(self, rank: int, mail: Mail | None, requests: Requests, pace: Pace) -> None:
        super().__init__(daemon=True)
        self.agreement = PointAgreement(mail)
        self.rank = rank
        self.requests = requests
        self.pace = pace
        self.agreed: list[tuple[int, str]] = []
        self.foreseen: list[int] = []

    def run(self) -> None:
        for point in itertools.count(1):
            self.agreement.advance()
            if self.agreement.reason:
                self.agreed.append((point, self.agreement.reason))
                self.agreement.settle()
            elif self.agreement.is_next:
                self.foreseen.append(point)
            if reason := self.requests(self.rank, point):
                self.agreement.request(reason)
            if self.pace.ends_at(point):
                break
        self.agreement.close()


class Pace:
    """Ranks that train together are never far apart: they meet every 50 points. The walk ends at one of these.

    Args:
        size: The number of ranks.
        points: How many points there are; `None` for as many as it takes until each rank has agreed on `agreements`.
    """

    def __init__(self, size: int, points: int | None, agreements: int = 0) -> None:
        self.points = points
        self.agreements = agreements
        self.walks: list[Walk] = []
        self.barrier = threading.Barrier(size, self.decide)
        self.over = False

    def decide(self) -> None:
        self.over = self.points is None and all(len(each.agreed) >= self.agreements for each in self.walks)

    def ends_at(self, point: int) -> bool:
        if point % 50 == 0:
            self.barrier.wait(60)
        return self.over or point == self.points


def walked(size: int, requests: Requests, points: int | None = None, agreements: int = 0) -> list[Walk]:
    everyone: list[Mail] = []
    pace = Pace(size, points, agreements)
    mails = [Mail(rank, everyone, size) if size > 1 else None for rank in range(size)]
    pace.walks = [Walk(rank, mail, requests, pace) for rank, mail in enumerate(mails)]
    for each in pace.walks:
        each.start()
    for each in pace.walks:
        each.join(60)
        assert not each.is_alive(), "a rank waits for ever"
    return pace.walks


@pytest.mark.parametrize("size", [1, 2, 4])
def test_all_ranks_agree_on_the_same_point(size: int) -> None:
    walks = walked(size, lambda rank, point: "by the last" if (rank, point) == (size - 1, 10) else "", agreements=1)
    assert len(walks[0].agreed) == 1
    assert {tuple(each.agreed) for each in walks} == {tuple(walks[0].agreed)}
    for each in walks:
        assert each.foreseen == [walks[0].agreed[0][0] - 1], "the point before it did not know"


def test_the_first_reason_counts_and_points_are_agreed_one_after_the_other() -> None:
    walks = walked(3, lambda rank, point: "now and then" if point % 1000 == 10 + rank else "", agreements=3)
    assert len(walks[0].agreed) >= 3
    assert {tuple(each.agreed) for each in walks} == {tuple(walks[0].agreed)}


def test_no_rank_waits_for_a_point_that_is_never_reached() -> None:
    for points in range(1, 8):
        walks = walked(2, lambda rank, point, last=points: "too late" if rank and point == last else "", points)  # type: ignore[misc]
        assert [each.agreed for each in walks] == [[], []]


def test_a_rank_does_not_wait_for_one_that_has_ended() -> None:
    class Ended(Mail):
        def has_ended(self, rank: int) -> bool:
            return True

    agreement = PointAgreement(Ended(0, [], 2))
    agreement.request("never answered")
    for _ in range(10):
        agreement.advance()
    assert not agreement.reason
