"""The script that torch's launcher runs, by its path, for each Python rank.

With `python -m`, the working directory would precede the standard library on `sys.path`, and a user's `queue.py` would
hide Python's. When the user's script starts, its own folder is put first, as Python does.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Runs the process."""
    folder = os.path.dirname(os.path.abspath(__file__))
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # that folder
    home = os.path.dirname(os.path.dirname(os.path.dirname(folder)))
    if home not in sys.path:
        sys.path.append(home)  # a copy that is not installed
    from notebook_accel.cli.launch import rank_variables
    from notebook_accel.launch.rank import script
    from notebook_accel.launch.rank.patches import jax

    rank_variables.unpack()
    jax.install()
    script.run_to_end(script.program(sys.argv[1:]))


if __name__ == "__main__":
    main()
