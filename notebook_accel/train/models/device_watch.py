"""Detects models that the user moved to another device after `prepare`."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from notebook_accel.errors import ConfigurationError


class DeviceWatch:
    """The devices of the prepared models. A model that was moved would cause an error far from its cause."""

    def __init__(self) -> None:
        self._seen: list[tuple[dict[str, Any], str, torch.device]] = []
        """For each model: the `_parameters` of a module, the name of one in it, and its device."""

    def add(self, model: nn.Module) -> None:
        for module in model.modules():
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    # By name, since some moves replace the parameter object.
                    self._seen.append((module._parameters, name, parameter.device))
                    return

    def clear(self) -> None:
        self._seen.clear()

    def check(self) -> None:
        """Compares the device of each model with the one that `prepare` moved it to.

        Raises:
            ConfigurationError: A model has been moved.
        """
        for parameters, name, device in self._seen:
            found = parameters[name].device
            if found != device:
                raise ConfigurationError(
                    f"a prepared model was moved from {device} to {found}; its optimizer and its batches are still on "
                    f"{device}. Remove the .to(...) or .cuda() after prepare; to export a model, move a copy of it."
                )

    def __reduce__(self) -> tuple[Any, ...]:
        return DeviceWatch, ()
