"""How the states of models and optimizers lie in the files of a checkpoint; a strategy names its layout.

    layout           saved by          written by            read by
    replicated.py    DDP, one device   one rank              every rank, as a whole
    sharded.py       FSDP2             every rank, its part  any number of ranks
      "gathered"     FSDP2, if asked   rank 0                every rank, its part

`layout.py` is their contract. A gathered checkpoint has the files of a replicated one. `merging.py` makes one set of
weights of any of them, in a single process. `safe_reader.py` reads shards without running code that is in them.
"""

from __future__ import annotations

import importlib

from notebook_accel.train.checkpoints.layouts.layout import LaidOut, Layout

TABLE = {
    "replicated": ("replicated", "Replicated"),
    "sharded": ("sharded", "Sharded"),
    "gathered": ("sharded", "Gathered"),
}
"""Module and class by name. A module is imported only when it is used, since some import slow parts of torch."""


def of(strategy: LaidOut) -> Layout:
    """The layout that a strategy names."""
    module, cls = TABLE[strategy.layout]
    found: type[Layout] = getattr(importlib.import_module(f"{__name__}.{module}"), cls)
    return found(strategy)
