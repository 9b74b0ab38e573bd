"""Options for click, which parses the command line and the magics. Imported when a line is parsed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from notebook_accel.config.kinds import Kind


class WholeNumber(click.IntRange):
    """A whole number that isn't below `min`. Unlike click's message, the one for another value says what to write."""

    name = "whole number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return int(super().convert(value, param, ctx))
        except click.BadParameter:
            name = param.opts[0] if param is not None else "the value"
            why = f"{name} must be a whole number of at least {self.min}, not {value!r}"
            raise click.UsageError(why, ctx) from None


def option(names: Sequence[str], kind: Kind, help: str, *, flag: bool = False, several: bool = False) -> click.Option:
    """An option whose value is text of a kind, which is read and checked later, together with its name.

    Args:
        names: Its spellings, and the name of its parameter.
        kind: The kind of its value.
        help: What it does.
        flag: Whether it takes no value.
        several: Whether it may be given more than once.
    """

    def complete(context: click.Context, param: click.Parameter, start: str) -> list[str]:
        del context, param
        return [each for each in kind.choices if each.startswith(start)]

    if flag:
        return click.Option(list(names), is_flag=True, default=None, help=help)
    return click.Option(list(names), metavar=kind.placeholder, multiple=several, help=help, shell_complete=complete)


def spellings(name: str) -> list[str]:
    """An option of the command line, with underscores as in Accelerate and with dashes, and its parameter."""
    return [*dict.fromkeys([f"--{name}", f"--{name.replace('_', '-')}"]), name]
