"""Explains an error that comes from a limit of processes and threads, which torch and Python don't name."""

from __future__ import annotations

import errno
import re
from dataclasses import replace

from notebook_accel.events import Raised
from notebook_accel.launch.system.limits import explain_refusal

_REFUSED = re.compile(r"RuntimeError: (Resource temporarily unavailable|can't start new thread)")
"""What C++'s and Python's threads raise."""


def with_limit(raised: Raised) -> Raised:
    """The error with the limit that is reached, and what to do; unchanged if it has another cause."""
    if _REFUSED.fullmatch(raised.text) is None:
        return raised
    return replace(raised, text=explain_refusal(OSError(errno.EAGAIN, raised.text)))
