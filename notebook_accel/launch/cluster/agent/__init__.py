"""The process on each node of a cluster: starts ranks on its own fork server, and relays their messages.

Start reading at `agent.py`.
"""
