"""Removes the timeouts of process groups, so that no collective fails because the user holds another rank."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from notebook_accel.launch.wire.mirrored.on_import import replace, when_imported

_NO_TIMEOUT = datetime.timedelta(days=30)
"""Torch takes no infinite timeout."""


def remove() -> None:
    """Removes the timeouts of process groups that are created from now on."""
    when_imported({"torch.distributed.distributed_c10d": _patch})


def _patch(c10d: Any) -> None:
    c10d.default_pg_timeout = c10d.default_pg_nccl_timeout = _NO_TIMEOUT
    replace(c10d, "_new_process_group_helper", _without_timeout)


def _without_timeout(create: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: create(*args, **{**kwargs, "timeout": _NO_TIMEOUT})
