"""Compares versions of packages."""

from __future__ import annotations

import importlib.metadata
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.torch_version import TorchVersion

from notebook_accel.errors import ConfigurationError

STR_OPERATION_TO_FUNC: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    "<": operator.lt,
}


def compare_versions(library_or_version: Any, operation: str, requirement_version: str) -> bool:
    """Compares the version of an installed package with another one, by the rules of PEP 440.

        if compare_versions("transformers", ">=", "4.40"): ...

    Args:
        library_or_version: The name of a package, or a version object.
        operation: `>`, `>=`, `==`, `!=`, `<=` or `<`.
        requirement_version: The version to compare with.

    Raises:
        ConfigurationError: There is no such operation.
        PackageNotFoundError: The package is not installed.
    """
    if operation not in STR_OPERATION_TO_FUNC:
        raise ConfigurationError(f"operation={operation!r} must be one of {', '.join(STR_OPERATION_TO_FUNC)}")
    is_name = isinstance(library_or_version, str) and not isinstance(library_or_version, TorchVersion)
    found = importlib.metadata.version(library_or_version) if is_name else str(library_or_version)
    return STR_OPERATION_TO_FUNC[operation](TorchVersion(found), requirement_version)


def is_torch_version(operation: str, version: str) -> bool:
    """Compares torch's version with another one: `is_torch_version(">=", "2.6")`; see `compare_versions`."""
    return compare_versions(TorchVersion(torch.__version__), operation, version)
