"""How a thread wakes another."""

from __future__ import annotations

import itertools
import os
import select

from notebook_accel.launch.wire.wakeup import Wakeup


def is_readable(source: Wakeup | int) -> bool:
    return bool(select.select([source], [], [], 0)[0])


def test_a_wakeup_is_readable_until_it_is_cleared() -> None:
    wakeup = Wakeup()
    assert not is_readable(wakeup)
    for _ in range(1_000):  # more than it holds
        wakeup.wake()
    assert is_readable(wakeup)
    wakeup.clear()
    assert not is_readable(wakeup)
    wakeup.close()


def test_a_wakeup_that_comes_after_the_end_goes_to_no_other_file() -> None:
    wakeup = Wakeup()
    first = wakeup.fileno()
    wakeup.close()
    pipes = [os.pipe() for _ in range(8)]
    assert any(first in ends for ends in pipes)
    wakeup.wake()
    assert not any(is_readable(reading) for reading, _ in pipes)
    for number in itertools.chain(*pipes):
        os.close(number)
