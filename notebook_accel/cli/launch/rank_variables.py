"""The environment variables that differ between the ranks of this machine, besides those that torch's launcher sets.

Torch's launcher gives all ranks the same environment, so these travel in one variable, from which each rank takes its
own before the script runs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence

VARIABLE = "NOTEBOOK_ACCEL_RANK_VARIABLES"
"""A JSON list with an object for each rank of this machine; unset before the script runs."""


def pack(by_rank: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The environment to start the ranks of this machine with: what all have in common, and the rest in `VARIABLE`."""
    common = dict(by_rank[0].items() & set.intersection(*(set(own.items()) for own in by_rank)))
    own = [{name: value for name, value in each.items() if name not in common} for each in by_rank]
    return common | ({VARIABLE: json.dumps(own)} if any(own) else {})


def unpack() -> None:
    """Sets this rank's own variables."""
    packed = os.environ.pop(VARIABLE, None)
    if packed is not None:
        os.environ.update(json.loads(packed)[int(os.environ["LOCAL_RANK"])])
