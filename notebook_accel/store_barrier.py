"""Makes ranks wait for each other in their store, as launches and training both do."""

from __future__ import annotations

from typing import Any


def await_all(store: Any, name: str, size: int) -> None:
    """Waits until all ranks have come here, by the key `name` in their `torch.distributed.Store`.

    Ranks may come here any number of times, if all of them do; in between, no rank overtakes another.

    Raises:
        torch.distributed.DistStoreError: Not all have come within the store's timeout.
    """
    count = store.add(name, 1)
    everyone = f"{name}/{(count - 1) // size}"
    if count % size == 0:
        store.set(everyone, "")
    store.wait([everyone])
