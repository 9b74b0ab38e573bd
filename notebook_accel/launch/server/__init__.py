"""The fork server: a child of the kernel that touches no device and starts no thread, so that forking it is safe.

Start reading at `main.py`, the process, then `server_loop.py`. `store.py` is another process, which hosts the
TCPStores; in it, `rendezvous.py` joins the nodes of a launch. `store_guard.py` is a process beside that one, which
keeps other users out, and `keeper.py` the server's parent.
"""
