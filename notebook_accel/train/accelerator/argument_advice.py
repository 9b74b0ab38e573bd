"""What to write instead of a keyword that `Accelerator` does not have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from notebook_accel.train.options.option_class import OF_THE_LAUNCH, calls_with

_OTHER_NAMES = {
    "fp16": "pass mixed_precision='fp16'",
    "bf16": "pass mixed_precision='bf16'",
    "device": "the launch chooses it. Pass device= to notebook_launcher, or cpu=True here",
    "ipex_plugin": "leave it out, because torch itself has the features of the extension",
}
"""Arguments of older versions of Accelerate, and what people try."""


def advice(keyword: str, given: Mapping[str, Any]) -> str:
    """What to write instead of a keyword of `Accelerator`; empty if nothing is known about it."""
    if keyword in _OTHER_NAMES:
        return _OTHER_NAMES[keyword]
    if call := calls_with(keyword, given[keyword]):
        return f"pass {call}"
    return "pass it to notebook_launcher" if keyword in OF_THE_LAUNCH else ""
