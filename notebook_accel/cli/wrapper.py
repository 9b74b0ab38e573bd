"""What torch's launcher runs for a rank that is watched, by this path.

As a module it would find what lies in the working directory before what Python has: a user's `queue.py`, say. When the
script begins, its own folder is put first, as Python does.
"""

from __future__ import annotations

import sys


def main() -> None:
    """The life of the rank."""
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # the folder of this file
    from notebook_accel.cli import watched

    watched.main()


if __name__ == "__main__":
    main()
