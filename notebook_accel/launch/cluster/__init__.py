"""Ranks on the nodes of a cluster.

    kernel ── calls, events ──▶ bridge ◀──── connects, frames ────▶ agent ── calls, events ──▶ fork server, ranks
                                  │                                              on each node
                                  ╰── launcher: starts the agents, no more

The driver's engine sends calls to the bridge and gets events; the bridge routes both by rank. A launcher, such as
Slurm's, only starts the agents. Each agent connects to the bridge over TCP, both prove that they know the secret of
this start, and then exchange frames. An agent uses the engine that any notebook uses, so ranks run as they do anywhere.

    bridge/             the process beside the kernel: relays groups, and holds nodes for them
    agent/              the process on each node: starts ranks on its own fork server
    launchers/          the ways to start agents: a file each, and its advice
    protocol.py         the frames that kernel, bridge and agents exchange
    clock_offset.py     how far a node's clock is ahead
    event_frames.py     the frames with events of ranks
    frame_queue.py      sends frames without waiting for their reader
    connection.py       an authenticated connection that carries frames
    agent_launcher.py   the contract of launchers
    shared_folders.py   the notebook's own folders on other nodes
    versions.py         the versions that must be the same on all nodes

Start reading at `protocol.py`, then `bridge/main.py` and `agent/agent.py`; `engines/cluster_ranks.py` is the driver's
side.
"""
