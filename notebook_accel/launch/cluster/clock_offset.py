"""How far a node's clock is ahead of the bridge's: known from the quickest of some round trips.

Source: the offset of NTP (RFC 5905, section 8), from the exchange with the smallest delay. Whatever the delay was made
of, the offset can't be wrong by more than half of it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from notebook_accel.launch.cluster.connection import FrameConnection

_ROUND_TRIPS = 8


@dataclass(frozen=True)
class ClockOffset:
    """In seconds."""

    ahead: float
    """How far the node's clock is ahead."""
    error: float
    """By how much `ahead` may be wrong."""


SAME_CLOCK = ClockOffset(0.0, 0.0)


def measure(link: FrameConnection) -> ClockOffset:
    """Measures it, at the bridge's end of a connection on which nothing else is being sent.

    Raises:
        OSError: The connection broke; also raised as EOFError or `StreamError`.
    """
    found = min((_round_trip(link) for _ in range(_ROUND_TRIPS)), key=lambda offset: offset.error)
    link.send([({"op": "measured"}, ())])
    return found


def answer(link: FrameConnection) -> None:
    """Answers at the node's end, until the bridge has measured.

    Raises:
        OSError: The connection broke; also raised as EOFError or `StreamError`.
    """
    while link.receive_header()["op"] == "clock":
        link.send([({"op": "clock", "at": time.time()}, ())])


def _round_trip(link: FrameConnection) -> ClockOffset:
    began, begin = time.time(), time.monotonic()
    link.send([({"op": "clock"}, ())])
    answered = float(link.receive_header()["at"])
    half = (time.monotonic() - begin) / 2
    return ClockOffset(answered - (began + half), half)
