"""Decides which ranks to start, from the configuration and the hardware. Runs in the driver and starts nothing.

plan.py             ─ makes the `Plan` of a launch; start reading here
devices.py          ─ how many ranks on this node, and on which of its devices
tpus.py             ─ the same for a TPU
cluster_nodes.py    ─ the same for the nodes of a cluster
capacity.py         ─ refuses more ranks than this node can hold
rendezvous.py       ─ where the ranks join each other
environment.py      ─ the environment variables of each rank
ranks_spec.py       ─ the ranks of a plan, as an engine starts them
other_frameworks.py ─ those of JAX, TensorFlow, and other frameworks with a rendezvous of their own
conflicts.py        ─ names running jobs that use the same devices or the same folder
run_facts.py        ─ what was launched, and with which versions, for the panel
elastic.py          ─ the plan of a restart with the ranks that are left
"""
