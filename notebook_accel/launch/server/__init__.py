"""The fork server: a child of the kernel that touches no device and starts no thread, so that forking it is safe.

Start reading at `main.py`; `store.py` is the process of the rendezvous stores.
"""
