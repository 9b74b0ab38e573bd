"""What a setting is called here, if a user writes its name in another interface: `--gpus` in a shell is `--gpu_ids`.

Each function returns an empty text if no interface has a setting of this name.
"""

from __future__ import annotations

from notebook_accel.config.keys import KEYS, key_of, setting_called

_FOR_MAGIC = {"use_fsdp": "--strategy fsdp", "use_cpu": "--device cpu", "cpu": "--device cpu"}
"""Names in other interfaces that `%accelerate` writes as an option with a value."""
_FOR_LAUNCH = {"strategy": "--use_fsdp to shard models", "device": "--cpu for the CPU"}
"""Settings, by field, of which the command line has a flag for one value."""


def instead_in_magic(option: str) -> str:
    """The end of the message about an option that `%accelerate` doesn't have."""
    name = _plain(option)
    row = setting_called(name)
    if name in _FOR_MAGIC:
        return f"; did you mean {_FOR_MAGIC[name]}?"
    if row is None:
        return ""
    if row.magic:
        return f"; did you mean {row.magic[-1]}?"
    return (
        f"; pass {row.argument}= to notebook_launcher" if row.argument else f"; set {row.key} in the configuration file"
    )


def instead_in_cell_magic(option: str) -> str:
    """Likewise, of `%%accelerate`, of whose own options only the number of ranks is a setting."""
    row = setting_called(_plain(option))
    return f"; set it with %accelerate {row.magic[-1]}, in another cell" if row is not None and row.magic else ""


def instead_on_command_line(option: str) -> str:
    """What to use instead of an option that `notebook-accel launch` doesn't have."""
    row = setting_called(_plain(option))
    if row is None:
        return ""
    if row.field in _FOR_LAUNCH:
        return f"use {_FOR_LAUNCH[row.field]}"
    key = KEYS.get(key_of(row))
    if key is not None and key.launch:
        return f"use --{key.option or key.key}"
    return f"only notebook_launcher has it, as {row.argument}=" if row.argument else ""


def _plain(option: str) -> str:
    return option.lstrip("-").partition("=")[0].replace("-", "_")
