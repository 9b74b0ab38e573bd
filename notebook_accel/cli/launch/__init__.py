"""`notebook-accel launch`: from its options to the ranks of a script, a module or a notebook, and their exit code.

From the command line to what to start:

    command.py       ─ the click command and its help
    options.py       ─ the table of options, one row each
    refusals.py      ─ options of `accelerate launch` that are not supported, and what to use instead
    choices.py       ─ the values of the options, and which of them exclude each other
    request.py       ─ options, settings and hardware become a `Request`; uses the next three
    program.py       ─ the script, module, program or notebook to run
    placement.py     ─ how many ranks on this machine, and on which devices
    rendezvous.py    ─ how the ranks find each other

Starting it:

    start.py         ─ runs a request to its end
    monitor.py       ─ the command's hold on the agent process: signals, exit code
    elastic.py       ─ PROCESS agent: runs torch's elastic launcher; the ranks end with it
    loopback_rendezvous.py ─ in the agent: the rendezvous of a single machine
    notebook_rank.py ─ PROCESS rank: runs a notebook's code cells; notebooks.py reads and writes the file

Start reading at `command.py`, then `request.py`, then `start.py`.
"""
