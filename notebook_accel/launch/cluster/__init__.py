"""Ranks on the nodes of a cluster.

    kernel ── control ──▶ bridge ──── transport ────▶ agent ──▶ fork server     on each node
      │  ╲─── group ────▶   │   frames, both ways      │            │
      ╰── channel, pipes ───╯                           ╰── channel, pipes ──▶ ranks

For the kernel, the bridge takes the place of the fork server: it is a process with the same sockets and pipes. Only the
bridge imports the cluster's library. The bridge and the agents exchange frames, and do not depend on the transport.
Under each agent, ranks run as they do anywhere.

    bridge/             the process beside the kernel: relays groups, and holds nodes for them
    agent/              the process on each node: starts ranks on its own fork server
    transports/         transports for frames: Ray, Slurm
    protocol.py         the frames that bridge and agents exchange
    transport.py        the contract of a transport
    connection.py       an authenticated connection that carries frames
    shared_folders.py   the notebook's own folders on other nodes
    select_once.py      one turn of an event loop
    versions.py         the versions that must be the same on all nodes

Start reading at `protocol.py`, then `bridge/main.py` and `agent/agent.py`; `engines/cluster_engine.py` is the
driver's side.
"""
