"""Strategies, which distribute models and optimizers over the ranks, and the table that chooses among them.

base.py             ─ the contract; start reading here
single.py           ─ a single rank: the shortest strategy
ddp.py              ─ a replica on every rank
mesh_parallel.py    ─ models sharded by FSDP2, layers and sequences split over ranks
xla.py              ─ TPUs

What they share:

wrapping.py         ─ which layers FSDP shards
context_parallel.py ─ how ranks share sequences
clipping.py         ─ limits gradients, wherever they are
layer_plans.py      ─ how tensor parallelism splits each layer
parameters.py       ─ for strategies that replace parameters
ddp_recovery.py     ─ repairs DDP models after persistent ranks were interrupted

To add a strategy, add a file here with a subclass of `Strategy`, and a row in `TABLE`, where the first row that applies
is chosen. If it has options, also add a field of `Settings`, or of `Mesh` in `ranks/mesh.py` if they arrange the ranks.
If users should be able to choose it by name, also add the name to `STRATEGIES` in `config/settings.py`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from notebook_accel.train.ranks.state import PartialState
from notebook_accel.train.strategies.base import Settings, Strategy


@dataclass(frozen=True)
class Row:
    """One strategy. Its module is imported only when it is chosen, since some import slow parts of torch."""

    module: str
    name: str
    applies: Callable[[PartialState, Settings], bool]
    """Whether it applies to these ranks and settings; called in the order of the table."""

    def load(self) -> type[Strategy]:
        found: type[Strategy] = getattr(importlib.import_module(f"{__name__}.{self.module}"), self.name)
        return found


TABLE = (
    Row("xla", "XlaReplicas", lambda state, settings: state.backend == "xla"),
    Row("mesh_parallel", "MeshParallel", lambda state, settings: settings.mesh.has_parts),
    Row("ddp", "DataParallel", lambda state, settings: state.use_distributed),
    Row("single", "SingleDevice", lambda state, settings: True),
)


def choose(state: PartialState, settings: Settings) -> Strategy:
    """Returns the first strategy of the table that applies to these ranks and settings.

    Raises:
        ConfigurationError: The strategy does not support one of the settings.
    """
    row = next(each for each in TABLE if each.applies(state, settings))
    return row.load()(state, settings)
