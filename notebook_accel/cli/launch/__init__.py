"""`notebook-accel launch`: runs a script, a module or a notebook on every rank, and exits with their exit code.

From the command line to a request:

    command.py              the click command and its help
    options.py              the table of options, one row each
    option_layer.py         the options as one more layer of settings
    request.py              turns settings and hardware into a `Request`; uses `launch/plan` and the next two
    program.py              the script, module, program or notebook to run
    rendezvous.py           how the ranks find each other

Starting it:

    start.py                runs a request to its end
    agent_process.py        forks the agent process, forwards signals to it, and returns its exit code
    elastic.py              PROCESS agent: runs torch's elastic launcher; the ranks end with it
    loopback_rendezvous.py  in the agent: the rendezvous of a single node
    notebook_rank.py        PROCESS rank: runs a notebook's code cells; notebooks.py reads and writes the file
    rank_cells.py           in that rank: the cells with `%%accelerate`

Start reading at `command.py`, then `request.py`, then `start.py`.
"""
