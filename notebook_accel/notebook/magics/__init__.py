"""The magics `%accelerate`, `%%accelerate` and `%%rank`: settings, status, jobs, and subcommands for persistent ranks.

    accelerate.py    ─ registers the magics, and imports the next file when one is used
    command.py       ─ `%accelerate` as a click command: its options, and the table of its subcommands
    configure.py     ─ `%accelerate` with options: changes settings, and saves them
    status.py        ─ `%accelerate` alone: shows devices, settings, and a preview of a launch
    job_commands.py  ─ `jobs`, `attach`, `flamegraph`, `profile`, `pause`, `checkpoint`, `end-after-epoch`, `tune`
    resume_command.py ─ `resume`
    rank_commands.py ─ `cells`, `stop`, `restart`, `interrupt`, `logs`, `push`, `pull`, `stacks`, `debug`

Start reading at `accelerate.py`.
"""
