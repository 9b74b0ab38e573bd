"""What both ends of a rank's sockets must agree on."""

from __future__ import annotations

import enum
import signal
import sys
from collections.abc import Mapping

STACKS_SIGNAL = signal.SIGRTMIN + 7 if sys.platform == "linux" else signal.SIGUSR2
"""Makes a rank write the Python stack of each of its threads to its stacks file, whatever it is doing.

Only for a rank that does not answer a request (see `rank/stacks/stack_sampler.py`). The rank's second thread takes the
signal, so that no system call of the user's code is interrupted."""

REPORT_INTERVAL = 0.1
"""Seconds between two reports of a rank's bars and metrics."""
GRACE = 5.0
"""How many seconds a rank has to end by itself after an interrupt, for instance to save a checkpoint."""
PREEMPTION_GRACE = 25.0
"""Seconds that a training run has to save a checkpoint and end. Most systems that reclaim a machine give 30 or more."""
SCRIPT_GRACE = 30.0
"""How many seconds a script has to end after a signal, as under torch's launcher."""
RANK_MARK = "NOTEBOOK_ACCEL_KERNEL"
"""A variable in the environment of ranks, and of what they start, which names the process that has launched them."""
STEP_MARK = "notebook-accel: a step ends"
"""The name of the events that mark the ends of steps in a trace of torch's profiler."""


class Streams(enum.Enum):
    """The standard streams of ranks, and thereby what runs in them: calls, or a script."""

    CALLS = "calls"  # no input; the driver reads what they write
    SCRIPT = "script"  # the driver's input; it reads what they write
    DRIVERS = "driver's"  # a script, which reads and writes where the driver does


RECORDER_SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
"""How many collectives torch's flight recorder keeps: the name of the variable, and its name in older versions."""
_RANKS_AT_FULL_RATE = 10
"""Up to this many ranks of one node report at `REPORT_INTERVAL`. More ranks report less often, so that the total rate
stays the same: a single process receives all reports."""


def report_interval(ranks: int) -> float:
    """Seconds between two reports of one of this many ranks."""
    return REPORT_INTERVAL * max(1.0, ranks / _RANKS_AT_FULL_RATE)


def recorder_size(environ: Mapping[str, str]) -> dict[str, str]:
    """The variable that lets torch's flight recorder keep as much as it does by default since torch 2.9.

    Before, it kept nothing by default. If the user has set the variable, there is nothing to add.
    """
    return {} if any(name in environ for name in RECORDER_SIZES) else {RECORDER_SIZES[0]: "2000"}
