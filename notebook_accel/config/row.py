"""`Setting`, the row of one setting: its names in the interfaces where users can set it."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

from notebook_accel.config.kinds import Kind


@dataclass(frozen=True)
class Setting:
    """One setting, with its names for users."""

    kind: Kind
    """How its value is read, checked and written."""
    help: str = ""
    """What it does, for help pages."""
    _: KW_ONLY
    field: str = ""
    """Its field of `LaunchConfig`, which the rows there need not repeat."""
    default: Any = None
    """Likewise, the default of that field."""
    argument: str = ""
    """Its name among the parameters of `notebook_launcher`."""
    none_is_given: bool = False
    """Whether a `None` as that argument is a value to check, because the parameter has another default."""
    variable: str = ""
    """The environment variable that users set."""
    rank_variable: str = ""
    """Accelerate's variable, which users may set too, and which each rank is given."""
    python_only: bool = False
    """Whether torch's launcher can't apply it, so that `notebook-accel launch` says that it passes it over."""
    magic: tuple[str, ...] = ()
    """Its option of `%accelerate`, with all its spellings, the usual one last."""
    key: str = ""
    """Its key in the configuration file, which is Accelerate's if Accelerate has it."""
    unset: tuple[Any, ...] = ()
    """Values of the key that mean the same as none, besides an empty one."""
    config: bool = False
    """Whether `notebook-accel config` has an option for the key, and shows it even if it is not set."""
    launch: str = ""
    """The heading for the key's option on the help page of `notebook-accel launch`; empty: there is none."""
    option: str = ""
    """The name of that option, if it is not the key's."""

    def parse_key(self, name: str, value: Any) -> Any:
        """The value of its key, in a file or on a command line, checked; `None` if it says nothing."""
        value = self.kind.convert(value)
        return None if value is None or is_any(value, self.unset) else self.kind.check(name, value)


def is_any(value: Any, of: tuple[Any, ...]) -> bool:
    """Whether the value is one of these, with 0 and `False` told apart."""
    return any(value == each and type(value) is type(each) for each in of)
