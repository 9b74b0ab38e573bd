"""The values of the options, and which of them exclude each other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from notebook_accel.cli.launch.options import OPTIONS, Option
from notebook_accel.config import keys
from notebook_accel.errors import ConfigurationError

_EXCLUDE = (
    ("cpu", "multi_gpu"),
    ("cpu", "gpu_ids"),
    ("module", "no_python"),
    ("cells", "module"),
    ("cells", "no_python"),
    ("output", "module"),
    ("output", "no_python"),
)
_FROM_ZERO = ("machine_rank", "main_process_port", "max_restarts", "fsdp_min_num_params")
"""Numbers that may be 0."""
_FORMS = {
    "tee": (r"[0-3]|(\d:[0-3],)*\d:[0-3]", "1 for stdout, 2 for stderr, 3 for both, or by rank as in 0:3,1:1"),
    "rdzv_conf": (r"[^=,]+=[^=,]+(,[^=,]+=[^=,]+)*", "pairs such as timeout=900,join_timeout=600"),
}
"""What torch's launcher can read, and how to say it."""


@dataclass(frozen=True)
class Choices:
    """The value of each option: of the command line, else of the layers below it."""

    given: Mapping[str, Any]
    """What the command line says, by option."""
    below: Mapping[str, Any] = field(default_factory=dict)
    """What file and environment say."""
    notices: tuple[str, ...] = ()
    """What is to be told of them."""

    def get(self, name: str) -> Any:
        """The value, or `None` if nobody says anything."""
        value = self.given.get(name)
        if value is None and name == "use_fsdp":
            return self.below.get("distributed_type") == "FSDP"
        return self.below.get(name) if value is None else value


def refuse_contradictions(choices: Choices) -> None:
    """Refuses options that exclude each other, have no effect, or a value that makes no sense.

    Raises:
        ConfigurationError: Says which.
    """
    given = choices.given
    for one, other in _EXCLUDE:
        if given.get(one) and given.get(other):
            raise ConfigurationError(f"--{one} and --{other} exclude each other: leave one of them out")
    for option in OPTIONS:
        if given.get(option.name) is not None:
            if option.only_with and not choices.get(option.only_with):
                raise ConfigurationError(f"--{option.name} has no effect without --{option.only_with}")
            _check(option, given[option.name])


def _check(option: Option, value: Any) -> None:
    """Refuses a value that makes no sense, or would have no effect."""
    name = f"--{option.name}"
    if option.moot and not keys.has_no_effect(option.name, value, name):
        raise ConfigurationError(f"{name} {value} would have no effect: FSDP2 does not have this choice. Leave it out.")
    if option.only_with == "use_fsdp" and not option.moot:
        keys.check(option.name, keys.KEYS[option.name].read(str(value)), name)
    if option.name == "fsdp_version" and value != 2:
        raise ConfigurationError(f"--fsdp_version {value}: models are sharded by FSDP2, the only one. Leave it out.")
    form, example = _FORMS.get(option.name, ("", ""))
    if form and not re.fullmatch(form, value):
        raise ConfigurationError(f"{name} {value}: write {example}")
    if option.type is float and not value > 0:
        raise ConfigurationError(f"{name} {value}: it must be above 0")
    least = 0 if option.name in _FROM_ZERO else 1
    if option.type is int and value < least:
        raise ConfigurationError(f"{name} {value}: it must be at least {least}")
