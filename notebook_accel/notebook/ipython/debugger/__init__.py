"""Debugs ranks with Jupyter's own debugger.

    kernel_debugger.py ─ stands before the kernel's debugger, and takes the requests that are for ranks
    rank_debugger.py   ─ the ranks that run now: their debuggers, which are held, and which the user looks at
    dap.py             ─ messages of the Debug Adapter Protocol, and the numbers in them

`launch/driver/debug_relay.py` passes the messages on to the ranks, where `launch/rank/debug_adapter.py`
takes them.
"""
