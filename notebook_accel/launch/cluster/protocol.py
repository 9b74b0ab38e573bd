"""The frames that the kernel, the bridge and the agents exchange.

A frame is a JSON object and blobs, like a message of `stream`. Descriptors cannot be sent to another node, so a blob
carries the content instead. `op` is the kind of frame. The kernel sends the first group to the bridge. The bridge
passes on `payload` and those below it: to the nodes of the `ranks` that they name, or to all.

    start     the ranks of a group, and the nodes that they need
    group     a new group, with its socket
    survey    which nodes there are
    preload   modules to import for later ranks; also goes to the agents
    payload   the content of a call's memory files; it goes to each node once
    call, send, finish, signal, dump_stacks, close_store, expect_ends
              as in the contract of engines
    read      how many bytes of a rank's events the kernel has read

    to an agent    offer     open a rendezvous, for some later group
                   compare   the folders of a group that the node may share
                   folder    the files of a folder that differ there
                   clock     what time is it there? (see `clock_offset.py`)
                   measured  that was the last time
                   start     the ranks of a group on this node, and their rendezvous
                   close     end a group
    from an agent  joined    the first frame: what the node is, and the versions there
                   clock     the time there
                   alive     nothing happened for a while
                   offered   the rendezvous that it has opened
                   compared  which folders it lacks
                   leaving   the node shuts down; start nothing else there
    to the kernel  events    events of a rank, as the kernel decodes them (see `event_frames.py`)
                   failed    a group cannot be started

Before any frame, an agent gets an order from what starts it, over a way that no other user can read:

    bridge     the host and the port to connect to
    secret     proves to each side that the other belongs to this start
    environ    environment variables of future ranks
    node       what tells this node from the others of this start; by default, the name that Slurm or the node gives it
    name       the node's name for users
    node_rank  the node's place among the others; by default, they are sorted by address

An order without `bridge` makes the process print what the node has, after `DESCRIPTION`, and end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Frame = tuple[dict[str, Any], Sequence[Any]]
"""The JSON object and its blobs."""

DESCRIPTION = "notebook-accel: "
"""Begins the line of a description, which other programs may precede."""
UNREAD = 2 * 2**20
"""The most unread bytes of one rank. Beyond that, its agent stops reading, and the rank waits as at a full pipe."""
SILENCE = 20.0
"""Seconds without a frame after which a node is considered lost."""
LEASE = 30.0
"""Seconds for which an agent waits until the bridge confirms what it has sent; then it ends its ranks."""
WAIT = 2.0
"""Seconds after which an agent that has nothing to send says that it is alive."""
