"""The operating system: processes, limits, memory, the network. Knows nothing of launches.

own_process.py       ─ this process: its beginning and its end, its parent, its children, its threads; start here
inherited.py         ─ what a process inherits from the one that starts it
processes.py         ─ starts Python processes of this package
limits.py            ─ how many processes, open files, and how much memory the system grants
memory.py            ─ memory that processes share
network.py           ─ interfaces, ports, name servers, and the users behind connections
installed.py         ─ tells installed code from the user's
node_environment.py  ─ which environment variables belong to a node
"""
