"""The base of options that are chosen by name."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from notebook_accel.errors import ConfigurationError

if TYPE_CHECKING:
    from typing_extensions import Self


class _ChoiceType(enum.EnumMeta):
    """The class of `Choice` and its subclasses, which explains the members that a subclass refuses."""

    if not TYPE_CHECKING:  # for a type checker, an unknown member stays unknown

        def __getattr__(cls, name: str) -> Any:
            members = cls.__dict__.get("_member_map_", {})
            if name in members:  # Python 3.10 looks up all members here
                return members[name]
            raise AttributeError(cls.refusal(name) or f"{cls.__name__} has no member {name!r}")

    @property
    def refused(cls) -> dict[str, str]:
        """The members that Accelerate has, but not this package, each with what to use instead."""
        return dict(cls.__dict__.get("_advice", {}))

    def refusal(cls, name: str) -> str:
        """The message about a member that Accelerate has, but not this package; empty for any other name."""
        advice = cls.refused.get(name.upper(), "")
        return f"notebook_accel has no {cls.__name__}.{name.upper()}. {advice}" if advice else ""


class Choice(str, enum.Enum, metaclass=_ChoiceType):
    """A choice that can also be given as a string, in upper or lower case.

    Subclasses are created with two keywords: `refused` has the names of Accelerate's members that they lack, and
    `advice` says what to use instead.
    """

    def __init_subclass__(cls, refused: str = "", advice: str = "") -> None:
        super().__init_subclass__()
        type.__setattr__(cls, "_advice", dict.fromkeys(refused.split(), advice))

    @classmethod
    def _missing_(cls, value: object) -> Choice | None:
        return next((each for each in cls if isinstance(value, str) and each.value.lower() == value.lower()), None)

    @classmethod
    def list(cls) -> list[str]:
        return [each.value for each in cls]

    def __str__(self) -> str:
        return str(self.value)

    @classmethod
    def of(cls, value: object, name: str) -> Self:
        """Parses the user's argument `name` into a choice."""
        try:
            return cls(value)
        except ValueError:
            refusal = cls.refusal(str(value))
            instead = f". {refusal}" if refusal else ""
            raise ConfigurationError(f"{name}={value!r} must be one of {', '.join(cls.list())}{instead}") from None
