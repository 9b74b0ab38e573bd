"""Ranks on the machines of a cluster.

    kernel ── control ──▶ bridge ──── transport ────▶ agent ──▶ fork server     on each machine
      │  ╲─── group ────▶   │   frames, both ways      │            │
      ╰── channel, pipes ───╯                           ╰── channel, pipes ──▶ ranks

To the kernel the bridge is what the fork server is on one machine: a process beside it, with the same sockets and
pipes. Only the bridge knows the cluster's own library. Agents speak in frames, and know nothing of how those travel:
`transport.py` says what that takes, and Ray is one way to do it. Under each agent the ranks live as they do anywhere.

    engine.py        the kernel's side: starts the bridge, and asks it
    bridge.py        the process beside the kernel
      relay.py       one group of ranks, between the kernel and the machines
      starting.py    what it takes to start them
      payloads.py    what they are called with, once for each machine
      relayed_rank.py  one of them
      sending.py     what it says and writes, on its way to the kernel
      fleet.py       machines that are held, and given back
      link.py        one of them
    transport.py     the seam
      ray_cluster.py   machines of a Ray cluster
      ray_advice.py    what can be wrong with one
      ray_actor.py     hosts an agent there
    frames.py        what bridge and agents tell each other
    folders.py       the notebook's own folders on other machines
    agent.py         the agent of one machine
      local_group.py   one group's ranks there
      stack_files.py   what they write when they crash
      words.py         what these say, for the kernel
      backlog.py       what there is to tell
"""
