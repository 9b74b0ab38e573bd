"""`notebook-accel launch`: runs a script, a module or a notebook on every rank, and exits with their exit code.

From the command line to a request:

    command.py              the click command and its help
    options.py              the table of options, one row each, and the layer of settings that they make
    start.py                turns settings and hardware into a `Request`, and runs it to its end
    script_job.py           runs it as a job on the fork server, as `notebook_launcher` runs a function
    program.py              the script, module, program or notebook to run
    rendezvous.py           how the ranks find each other

What only torch's elastic launcher does, such as several machines, it does in processes of its own:

    agent_process.py        forks the agent process, forwards signals to it, and returns its exit code
    elastic.py              PROCESS agent: runs torch's elastic launcher; the ranks end with it
    wrapper.py              PROCESS rank: the script that torch's launcher runs, and the variables that differ
    loopback_rendezvous.py  in the agent: the rendezvous of a single node
    notebook_rank.py        PROCESS rank: runs a notebook's code cells; notebooks.py reads and writes the file

Start reading at `command.py`, then `start.py`.
"""
