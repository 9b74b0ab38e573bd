"""The fork server: a child of the kernel that touches no device and starts no thread, so that forking it is safe.

main.py          ─ the process; start reading here
server_loop.py   ─ its loop: requests from the driver, exits of ranks, and chores
groups.py        ─ what it knows of one group of ranks
start_methods.py ─ what it imports, and what its forks run
preloading.py    ─ imports what the notebook has imported, as long as forking stays safe
forking.py       ─ makes forks cheap
warm_ranks.py    ─ forks that wait for a launch

Four other processes belong to it:

base.py          ─ PROCESS: what fork servers are forks of, if there is one
imported.py      ─ whether a new process would have imported the same as the base server
keeper.py        ─ PROCESS, its parent: ends whatever outlives it
abandoned.py     ─ what the next keeper does if all were killed at once
store.py         ─ PROCESS, its child: hosts the TCPStores; store_link.py is the connection to it
rendezvous.py    ─ joins the nodes of a launch, in the process of the store
store_guard.py   ─ PROCESS, next to the store: keeps other users out
"""
