"""The process on each node of a cluster: starts ranks on a fork server of its own, and relays their messages.

Start reading at `agent.py`.
"""
