"""What bridge and agents tell each other.

A frame is a JSON object and blobs, like a message of `stream`; descriptors can't cross machines, so what they stand for
travels as a blob. `op` says what it is about:

    to an agent    offer     a meeting point is to be opened for some group to come
                   compare   the folders of a group that it may share
                   folder    the files of a folder that differ there
                   preload   what ranks to come should find imported
                   start     the ranks of a group here, and where they meet
                   payload   a call's memory file, once for all ranks of a machine
                   say       a message to a rank
                   finish    no further message to a rank comes
                   read      how many bytes of what a rank has said and written the notebook has taken
                   signal, disperse, part, close    as in the contract of engines
    from an agent  offered   the meeting point that it has opened
                   compared  which folders it lacks
                   said      what a rank says, as the kernel reads it (see `words.py`)
                   wrote     what a rank has written to its standard output or error
                   stacks    what a rank's stacks file holds now
                   silent    a rank has closed its channel
                   ended     a rank has ended
                   failed    a group can't be started
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Frame = tuple[dict[str, Any], Sequence[Any]]
"""The object, and its blobs."""

UNREAD = 2 * 2**20
"""Bytes of one rank that may be on their way to the notebook; it waits then, as at a full pipe."""
SILENCE = 20.0
"""Seconds without a word after which a machine is lost."""
LEASE = 30.0
"""Seconds without a question after which an agent ends its ranks."""
WAIT = 2.0
"""Seconds that an agent which has nothing to tell lets a question wait."""


def weight(blobs: Sequence[Any]) -> int:
    """Bytes that a frame with these counts for."""
    return sum(memoryview(blob).nbytes for blob in blobs) + 64
