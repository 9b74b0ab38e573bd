"""Ranks on the nodes of a cluster.

    kernel ── control ──▶ bridge ◀──── connects, frames ────▶ agent ──▶ fork server     on each node
      │  ╲─── group ────▶   │                                   │            │
      ╰── channel, pipes ───┤                                   ╰── channel, pipes ──▶ ranks
                            ╰── launcher: starts the agents, no more

For the kernel, the bridge takes the place of the fork server: it is a process with the same sockets and pipes. A
launcher, such as Slurm's, only starts the agents. Each agent connects to the bridge over TCP, both prove that they know
the secret of this start, and then exchange frames. Under each agent, ranks run as they do anywhere.

    bridge/             the process beside the kernel: relays groups, and holds nodes for them
    agent/              the process on each node: starts ranks on its own fork server
    launchers/          the ways to start agents: a file each, and its advice
    protocol.py         the frames that bridge and agents exchange
    connection.py       an authenticated connection that carries frames
    agent_launcher.py   the contract of launchers
    shared_folders.py   the notebook's own folders on other nodes
    select_once.py      one turn of an event loop
    versions.py         the versions that must be the same on all nodes

Start reading at `protocol.py`, then `bridge/main.py` and `agent/agent.py`; `engines/cluster_engine.py` is the
driver's side.
"""
