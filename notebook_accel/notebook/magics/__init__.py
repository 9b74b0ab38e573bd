"""The magics `%accelerate` and `%%accelerate`: settings, status, jobs, and subcommands for persistent ranks.

    accelerate.py    ─ registers the magics and dispatches a line
    configure.py     ─ `%accelerate` with options: sets them, and saves them
    status.py        ─ `%accelerate` alone: devices, settings, and what a launch would do
    subcommands.py   ─ the table of subcommands; a new one is a row there and a function in one of the next two
    job_commands.py  ─ `jobs`, `attach`
    rank_commands.py ─ `stop`, `restart`, `interrupt`, `logs`, `push`, `pull`, `stacks`, `debug`

Start reading at `accelerate.py`.
"""
