"""The process beside the driver that reaches a cluster's nodes for it.

Start reading at `main.py`, then `relay.py` (one group of ranks, between the driver and the nodes).
`node_pool.py` holds nodes, `link.py` is one of them.
"""
