"""Has `torch._dynamo` sum up compilations at a process's exit only if someone reads the sum.

It formats tables for a message of its logger whether or not the logger takes that message. That takes each rank a
millisecond or two, in which the launch waits for it (torch 2.13, `dump_compile_times`).
"""

from __future__ import annotations

import atexit
import logging
import sys
from typing import Any


def install() -> None:
    """Replaces the exit handler, if `torch._dynamo` has been imported."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    dump = getattr(utils, "dump_compile_times", None)
    if dump is not None:
        for each in (dump, _dump_if_logged):
            atexit.unregister(each)
        atexit.register(_dump_if_logged, utils.log, dump)


def _dump_if_logged(log: logging.Logger, dump: Any) -> None:
    if log.isEnabledFor(logging.INFO):
        dump()
