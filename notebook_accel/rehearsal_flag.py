"""Whether this process is a rank of a rehearsal, in which nothing of the user's is written."""

from __future__ import annotations

import os

VARIABLE = "NOTEBOOK_ACCEL_REHEARSING"
"""Set on the ranks of a rehearsal."""


def rehearsing() -> bool:
    """Whether this rank runs in `rehearse`, so that files, uploads, and the like should be left out.

    The methods of `Accelerator` that save write nothing then, and start no trackers.
    """
    return bool(os.environ.get(VARIABLE))
