"""The strategies of Accelerate that this package does not have."""

from __future__ import annotations

from typing import Any

from notebook_accel.errors import ConfigurationError


def refuse(**plugins: Any) -> None:
    """Raises for a plugin of such a strategy, given by the name of its argument."""
    for name, value in plugins.items():
        if value is not None:
            raise ConfigurationError(
                f"{name} is not supported: choose from DDP (the default on several ranks), FSDP2 "
                "(fsdp_plugin), tensor parallel (torch_tp_plugin) and several dimensions (parallelism_config)"
            )
