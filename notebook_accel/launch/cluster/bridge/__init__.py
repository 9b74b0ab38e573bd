"""The process that connects the driver to a cluster's nodes.

Start reading at `main.py`, then `agents.py` (has agents start, and lets them in) and `relay.py` (one group of ranks,
between the driver and the nodes). `group_start.py` starts its ranks. `node_pool.py` holds nodes, and `node.py` is one
of them.
"""
