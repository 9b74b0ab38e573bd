"""The command line: `notebook-accel COMMAND`, or `python -m notebook_accel COMMAND`.

    entry.py      ─ the console script: starts importing torch for a launch, then runs main.py
    main.py       ─ the click group, the table of commands, and the exit code of each error (exit_codes.py)

    launch/       ─ `launch`: runs a script, a module or a notebook on every rank
    config.py     ─ `config`: prompts for settings, and shows and changes the configuration file
    estimate.py   ─ `estimate-memory`
    check.py      ─ `test`: checks whether this machine can train on several ranks; rank_checks.py: the ranks' part
    checkpoints.py ─ `checkpoints`: lists, verifies, prunes, and converts the checkpoints in a folder; `merge-weights`
    jobs.py       ─ `jobs`, `job`, `explain`, `wait`, `stop`, `log`, `resume`, `compare`: jobs on this disk
    scale_script.py ─ `scaling`: runs a script with several numbers of ranks
    server.py     ─ `server`: the base servers, which have torch in memory
    env.py, lab.py ─ `env`, `lab`

To add a command, add a file with a click command called `command`, and a row of `COMMANDS` in main.py. Each command is
imported when it is used.
"""
