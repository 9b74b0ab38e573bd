"""The process that connects the driver to a cluster's nodes.

Start reading at `main.py`, then `relay.py` (one group of ranks, between the driver and the nodes).
`node_pool.py` holds nodes, `link.py` is one of them.
"""
