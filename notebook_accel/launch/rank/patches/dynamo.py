"""Does once, in the server, what `torch._dynamo` would otherwise do in each rank for nothing.

At a process's exit it formats tables for a message of its logger, whether or not the logger takes that message
(`dump_compile_times`). And a process group that is created first empties caches that the import has filled
(`clear_lru_cache`), which in a fork copies the memory that it frees. Both are of torch 2.13, and take a rank a
millisecond each.
"""

from __future__ import annotations

import atexit
import logging
import sys
from typing import Any


def install() -> None:
    """Replaces the exit handler and empties the caches, if `torch._dynamo` has been imported."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    dump = getattr(utils, "dump_compile_times", None)
    if dump is not None:
        for each in (dump, _dump_if_logged):
            atexit.unregister(each)
        atexit.register(_dump_if_logged, utils.log, dump)
    clear = getattr(sys.modules.get("torch._dynamo.trace_rules"), "clear_lru_cache", None)
    if clear is not None:
        clear()


def _dump_if_logged(log: logging.Logger, dump: Any) -> None:
    if log.isEnabledFor(logging.INFO):
        dump()
