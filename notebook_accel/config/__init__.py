"""The settings of a launch, merged from layers: defaults < file < environment < magic < call.

    settings.py       ─ the row of a setting; and LaunchConfig: each field with its type, its row and its default
    kinds.py          ─ the kinds of values: how each is read, checked and written
    durations.py      ─ spans of time, such as `5 min`
    ssh_hosts.py      ─ the hosts that a cluster's address lists
    addresses.py      ─ whom `notify=` tells
    remote_folders.py ─ folders that are addresses, such as `s3://bucket/run`
    layers.py         ─ merges layers into one configuration, which records where each value came from
    call_arguments.py ─ the layer of a call: the arguments of notebook_launcher
    environment_variables.py ─ the layer of the environment; and the variables that a launch sets for its ranks
    file.py           ─ the layer of the YAML file
    keys.py           ─ the keys of that file, which are Hugging Face Accelerate's, and the fields that they set
    deepspeed.py      ─ translates a configuration of DeepSpeed's to these keys and fields
    click_options.py  ─ options of the command line and of `%accelerate`, made from rows
    resolve.py        ─ merges all layers; start reading here

Each of these interfaces is made from the rows. `gradient_accumulation_steps` is a field with its row, and nothing else.

Nothing here checks the hardware; `launch/plan/` does so when a launch begins.
"""

from notebook_accel.config.settings import DEFAULT_PORT, PRECISIONS, LaunchConfig

__all__ = ["DEFAULT_PORT", "PRECISIONS", "LaunchConfig"]
