"""The magics `%accelerate` and `%%accelerate`: settings, status, jobs, and subcommands for persistent ranks.

    accelerate.py    ─ registers the magics and dispatches a line
    configure.py     ─ `%accelerate` with options: changes settings, and saves them
    status.py        ─ `%accelerate` alone: shows devices, settings, and a preview of a launch
    subcommands.py   ─ the table of subcommands; a new one needs a row there and a function in one of the next two files
    job_commands.py  ─ `jobs`, `attach`
    rank_commands.py ─ `stop`, `restart`, `interrupt`, `logs`, `push`, `pull`, `stacks`, `debug`

Start reading at `accelerate.py`.
"""
