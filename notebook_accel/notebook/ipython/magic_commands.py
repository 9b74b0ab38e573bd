"""Magics that click parses: nothing exits the kernel, errors are this package's, and Tab completes their lines.

Imported when a magic is first used, because click takes long to import.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

import click
from click.core import augment_usage_errors
from click.shell_completion import CompletionItem, ShellComplete

from notebook_accel.config.keys import what_to_write
from notebook_accel.errors import ConfigurationError, did_you_mean
from notebook_accel.launch.show import console


class MagicCommand(click.Command):
    """A magic, or a subcommand of one. Unlike on a command line, an option that is given twice is an error."""

    interface = ""
    """The interface of settings that its options are, as in `advice.py`; empty if none of them is a setting."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with augment_usage_errors(ctx):
            _, _, order = self.make_parser(ctx).parse_args(list(args))
        for param in [] if ctx.resilient_parsing else order:
            if isinstance(param, click.Option) and not param.multiple and order.count(param) > 1:
                ctx.fail(f"{param.opts[0]} is given twice")
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = super().shell_complete(ctx, incomplete)
        return found if incomplete else [*super().shell_complete(ctx, "--"), *found]  # options before their first dash


class CodeCommand(MagicCommand):
    """A subcommand whose arguments after the first are code: everything after its first word, as one string."""

    allow_interspersed_args = False
    ignore_unknown_options = True


class MagicGroup(MagicCommand, click.Group):
    """A magic with subcommands."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [*args[1:2], "--help"] if args[:1] == ["help"] else args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Subcommands"):
            formatter.write_dl([(_usage(each), each.help or "") for each in self.commands.values()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0].startswith(_DASHES) and not ctx.resilient_parsing:
            ctx.fail(f"{args[0]!r} begins with a dash: write options with a hyphen, as in -n")
        if args[0] not in self.commands and not ctx.resilient_parsing:
            hint = did_you_mean(args[0], self.commands) or f"; choose one of {', '.join(self.commands)}"
            ctx.fail(f"there is no subcommand {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)


def run(command: click.Command, magic: str, line: str, shell: Any = None) -> Any:
    """Runs a line, and returns what the command returns.

    Args:
        command: The command of the magic.
        magic: Its name.
        line: What follows the name.
        shell: The object that commands get with `click.pass_obj`.

    Raises:
        ConfigurationError: The line does not have the form that the command needs.
    """
    try:
        with command.make_context(magic, _words(command, magic, line), obj=shell, **_CONTEXT) as context:
            return command.invoke(context)
    except click.exceptions.Exit:  # after --help
        return None
    except click.UsageError as error:
        raise ConfigurationError(f"{error.ctx.command_path if error.ctx else magic}: {_explain(error)}") from None


def say(text: str) -> None:
    """Shows what a magic has to say, below its cell."""
    console.current.write("stdout", f"{text}\n")


def complete(command: click.Command, shell: Any, words: Sequence[str], start: str) -> list[str]:
    """The words that may stand at the cursor of a line.

    Args:
        command: The command of the magic.
        shell: As in `run`.
        words: The words before the cursor.
        start: What stands of the word at the cursor.
    """
    option, equals, value = start.partition("=")
    option = _dashes(option) if option.startswith("--") else option
    words = [_dashes(word) if word.startswith("--") and "=" not in word else word for word in words]
    if equals and not any(option in param.opts for param in _command_of(command, words).params):
        return []
    completer = ShellComplete(command, {"obj": shell, **_CONTEXT}, "", "")
    found = [each.value for each in completer.get_completions(list(words), f"{option}{equals}{value}")]
    return [f"{option}={each}" for each in found] if equals and option.startswith("-") else found


def _command_of(command: click.Command, words: Sequence[str]) -> click.Command:
    """The subcommand that a line names, or the magic's own command."""
    subcommands = command.commands if isinstance(command, click.Group) else {}
    return next((subcommands[word] for word in words if word in subcommands), command)


def page(command: click.Command, magic: str) -> str:
    """The help page of a magic."""
    with command.make_context(magic, [], resilient_parsing=True, **_CONTEXT) as context:
        return command.get_help(context)


def _dashes(name: str) -> str:
    """`num-processes` for `num_processes`; as in Accelerate, both are accepted."""
    return name.replace("_", "-")


_DASHES = ("\N{EN DASH}", "\N{EM DASH}")
"""What word processors and web pages make of a hyphen."""
_CONTEXT: dict[str, Any] = {
    "token_normalize_func": _dashes,
    "help_option_names": ["-h", "--help"],
    "terminal_width": 110,
}


def _usage(command: click.Command) -> str:
    arguments = [param.metavar or "" for param in command.params if isinstance(param, click.Argument)]
    return " ".join([command.name or "", *arguments])


def _words(command: click.Command, magic: str, line: str) -> list[str]:
    first = line.split(maxsplit=1)[:1]
    if first and isinstance(command, click.Group) and isinstance(command.commands.get(first[0]), CodeCommand):
        return line.split(maxsplit=2)
    try:
        words = shlex.split(line)
    except ValueError as error:
        why = (
            "it ends in a backslash: write all options on one line" if line.endswith("\\") else "a quote is not closed"
        )
        raise ConfigurationError(f"{magic} {line}: {why}") from error
    comment = next((number for number, word in enumerate(words) if word.startswith("#")), len(words))
    return [re.sub(r"^(-[A-Za-z])=", r"\1", word) for word in words[:comment]]  # `-n=2`, which click takes for `=2`


def _explain(error: click.UsageError) -> str:
    params = [] if error.ctx is None else error.ctx.command.get_params(error.ctx)
    options = [param for param in params if isinstance(param, click.Option)]
    if not isinstance(error, click.NoSuchOption):
        named = [each for each in options if getattr(error, "option_name", None) in each.opts]
        if isinstance(error, click.BadOptionUsage) and named and not named[0].is_flag:
            return f"{error.option_name} needs a value: {named[0].metavar}"
        return error.format_message()
    known = [each.opts[-1] for each in options]
    if known == ["--help"]:
        return f"there is no option {error.option_name}; it takes no options"
    command = error.ctx.command if error.ctx else None
    interface = command.interface if isinstance(command, MagicCommand) else ""
    if interface and (instead := what_to_write(error.option_name, interface)):
        return f"there is no option {error.option_name}; {instead}"
    longer = [name for name in known if name.startswith(error.option_name)]
    hint = did_you_mean(longer[0] if longer else error.option_name, known) or f"; there are {', '.join(known)}"
    return f"there is no option {error.option_name}{hint}"
