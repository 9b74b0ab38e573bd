"""The settings of a launch, merged from layers: defaults < file < environment < magic < call.

    settings.py       ─ LaunchConfig, and the table of settings: one row each, with all its names
    checks.py         ─ the valid values of each kind of setting
    layers.py         ─ merges layers into one configuration, which records where each value came from
    call_arguments.py ─ the layer of a call: the arguments of notebook_launcher
    environment_variables.py ─ the layer of the environment; and the variables that a launch sets for its ranks
    file.py           ─ the layer of the YAML file
    keys.py           ─ the keys of that file, which are Hugging Face Accelerate's
    translation.py    ─ from those keys to fields of LaunchConfig, and back
    resolve.py        ─ merges all layers; start reading here

A YAML key such as `gradient_accumulation_steps` is checked by its row in `keys.KEYS`, becomes a field of LaunchConfig
in `translation.to_fields`, and a variable in each rank's environment in `environment_variables.rank_environment`.

Nothing here checks the hardware; `launch/plan/` does so when a launch begins.
"""

from notebook_accel.config.settings import DEFAULT_PORT, PRECISIONS, LaunchConfig

__all__ = ["DEFAULT_PORT", "PRECISIONS", "LaunchConfig"]
