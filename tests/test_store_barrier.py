"""Ranks that wait for each other in their store."""

from __future__ import annotations

import importlib
import threading
from typing import Any

from notebook_accel.store_barrier import await_all


def test_none_goes_on_before_all_have_come_however_often_they_come() -> None:
    dist: Any = importlib.import_module("torch.distributed")
    store = dist.HashStore()
    for _ in range(2):
        first = threading.Thread(target=await_all, args=(store, "met", 2))
        first.start()
        first.join(0.1)
        assert first.is_alive()
        await_all(store, "met", 2)
        first.join()
