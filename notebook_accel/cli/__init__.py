"""The command line: `notebook-accel COMMAND`, or `python -m notebook_accel COMMAND`.

    entry.py      ─ the console script: starts importing torch for a launch, then runs main.py
    main.py       ─ the click group, the table of commands, and which error gives which exit code (exit_codes.py)

    launch/       ─ `launch`: a script, a module or a notebook on every rank
    watch/        ─ the table of ranks in the terminal while a launch runs, and the ranks' part in it
    config/       ─ `config`: asks for settings, shows and changes the configuration file
    estimate/     ─ `estimate-memory`
    check/        ─ `test`: whether this machine can train on several ranks
    env.py, merge.py, lab.py ─ `env`, `merge-weights`, `lab`

A new command is a file with a click command called `command`, or a folder with `command.py`, and a row of `COMMANDS` in
main.py. Each is imported when it is used.
"""
