"""Which environment variables belong to a node, so that ranks on other nodes do not get the notebook's."""

from __future__ import annotations

from collections.abc import Mapping

_OF_A_NODE = frozenset(
    [
        "CUDA_VISIBLE_DEVICES",
        "DBUS_SESSION_BUS_ADDRESS",
        "DISPLAY",
        "HIP_VISIBLE_DEVICES",
        "HOME",
        "HOST",
        "HOSTNAME",
        "LOGNAME",
        "MAIL",
        "OLDPWD",
        "PATH",
        "PWD",
        "ROCR_VISIBLE_DEVICES",
        "SHELL",
        "SHLVL",
        "TEMP",
        "TERM",
        "TMP",
        "TMPDIR",
        "USER",
        "USERNAME",
        "VIRTUAL_ENV",
        "VIRTUAL_ENV_PROMPT",
    ]
)
_OF_A_NODE_PREFIXES = ("CONDA_", "JPY_", "LD_", "PYTHONHOME", "PYTHONPATH", "RAY_", "SLURM_", "SSH_", "XDG_", "_")


def shared_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The notebook's environment without the variables that belong to its node."""
    return {
        name: value
        for name, value in environ.items()
        if name not in _OF_A_NODE and not name.startswith(_OF_A_NODE_PREFIXES)
    }
