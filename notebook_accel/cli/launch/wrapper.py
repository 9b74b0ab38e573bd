"""The script that torch's launcher runs, by its path, for each Python rank, and the variables that it sets there.

With `python -m`, the working directory would precede the standard library on `sys.path`, and a user's `queue.py` would
hide Python's. When the user's script starts, its own folder is put first, as Python does.

Torch's launcher gives all ranks the same environment. So the variables that differ between them travel in one, from
which each rank takes its own before the user's script runs.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence

VARIABLE = "NOTEBOOK_ACCEL_RANK_VARIABLES"
"""A JSON list with an object for each rank of this machine; unset before the user's script runs."""


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


def main() -> None:
    """Runs the process."""
    folder = os.path.dirname(os.path.abspath(__file__))
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # that folder
    home = os.path.dirname(os.path.dirname(os.path.dirname(folder)))
    if home not in sys.path:
        sys.path.append(home)  # a copy that is not installed
    from notebook_accel.launch.rank import script
    from notebook_accel.launch.rank.patches import jax

    unpack()
    jax.install()
    script.run_to_end(script.program(sys.argv[1:]))


if __name__ == "__main__":
    main()
