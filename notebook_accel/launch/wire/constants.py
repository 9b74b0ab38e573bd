"""What both ends of a rank's sockets must agree on."""

from __future__ import annotations

import signal
import sys

STACKS_SIGNAL = signal.SIGRTMIN + 7 if sys.platform == "linux" else signal.SIGUSR2
"""Makes a rank write the Python stack of each of its threads to its stacks file, whatever it is doing.

Only for one that does not answer (see `looking`). Its second thread takes the signal, so that it interrupts no call of
the user's code."""


DESCRIPTORS = 6
"""Of each rank: its channel, twice, two pipes, its stacks, and one on its way to the kernel."""


REPORT_INTERVAL = 0.1
"""Seconds between two times that it is told."""
_RANKS_AT_FULL_RATE = 10
"""Up to so many ranks of one machine tell at `PACE`; more tell less often, and all of them together no more than these.

One process hears them all."""


def report_interval(ranks: int) -> float:
    """Seconds between two times that one of so many ranks tells."""
    return REPORT_INTERVAL * max(1.0, ranks / _RANKS_AT_FULL_RATE)
