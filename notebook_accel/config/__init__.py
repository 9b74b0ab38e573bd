"""The settings of a launch, merged once of defaults < file < environment < magic < call.

What is in here, one file each:

    settings.py  ─ LaunchConfig, and the table of what users may set, and by which names
    checks.py    ─ what each kind of setting may be
    layers.py    ─ several layers become one configuration, which knows where each value came from
    call.py      ─ the arguments of notebook_launcher
    variables.py ─ environment variables: those that users set, and those that a launch writes for its ranks
    file.py      ─ the YAML file
    keys.py      ─ its keys, which are the peer's
    translation.py ─ from them to LaunchConfig, and back
    resolve.py   ─ all layers together

Nothing in here asks what the machine has: a plan does, when settings meet the hardware.
"""

from notebook_accel.config.settings import DEFAULT_PORT, PRECISIONS, LaunchConfig

__all__ = ["DEFAULT_PORT", "PRECISIONS", "LaunchConfig"]
