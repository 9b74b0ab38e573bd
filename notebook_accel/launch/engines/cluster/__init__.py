"""Ranks on the machines of a cluster.

    kernel ── control ──▶ bridge ──── transport ────▶ agent ──▶ fork server     on each machine
      │  ╲─── group ────▶   │   frames, both ways      │            │
      ╰── channel, pipes ───╯                           ╰── channel, pipes ──▶ ranks

To the kernel the bridge is what the fork server is on one machine: a process beside it, with the same sockets and pipes.
Only the bridge knows the cluster's own library. Agents speak in frames, and know nothing of how those travel:
`transport.py` says what that takes, and Ray is one way to do it. Under each agent the ranks live as they do anywhere.
"""
