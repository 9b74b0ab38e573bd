"""The operating system: processes, the C library, limits, the network. Knows nothing of launches.

processes.py           ─ starts Python processes of this package
process_setup.py       ─ sets up a new process; start reading here
process_exit.py        ─ ends a process that has run the user's code
children.py            ─ the children of a process, and orphans that it adopts
threads.py             ─ starts threads in the background
main_thread.py         ─ signals while the main thread waits for the user
limits.py              ─ how many processes and how much memory the system grants
open_file_limit.py     ─ how many open files it grants
libc.py                ─ calls of the C library
memory/                ─ memory that processes share
installed.py           ─ tells installed code from the user's
node_environment.py    ─ which environment variables belong to a node
network_interfaces.py  ─ the interfaces of this machine
name_resolution.py     ─ keeps name servers out of a rendezvous on this machine
connection_owner.py    ─ the user behind a connection
reserved_ports.py      ─ ports that are held free
"""
