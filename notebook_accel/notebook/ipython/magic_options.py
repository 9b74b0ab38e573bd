"""The options of a magic: declared in a table, from which they are parsed, explained and completed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from notebook_accel.errors import ConfigurationError, did_you_mean


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option of a magic."""

    flags: tuple[str, ...]
    """Its spellings, the usual one last: `("-n", "--num-processes")`."""
    summary: str
    """What it does, in one line."""
    value: str = ""
    """The name of its value in the help; empty if it takes none."""
    choices: Sequence[str] = ()
    """Values to offer for completion; others may be valid too."""
    repeats: bool = False
    """Whether it may be given more than once."""

    @property
    def name(self) -> str:
        """Its name as an identifier: `num_processes`."""
        return self.flags[-1].lstrip("-").replace("-", "_")

    @property
    def usage(self) -> str:
        """The option and its value, for the help."""
        return f"{', '.join(self.flags)} {self.value}".rstrip()


def parse(magic: str, options: Iterable[Option], words: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Parses a line.

    Args:
        magic: The name of the magic or subcommand, for messages.
        options: Its options.
        words: The words of the line.

    Returns:
        The values of each option on the line, by the option's name, and the words that belong to no option.

    Raises:
        ConfigurationError: An option is unknown, lacks its value, or has one too many.
    """
    known = {flag: option for option in options for flag in option.flags}
    found: dict[str, list[str]] = {}
    rest: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("-"):
            rest.append(word)
            continue
        flag, equals, value = word.partition("=")
        option = known.get(_dashes(flag))
        if option is None:
            raise ConfigurationError(f"{magic} has no option {flag}{_nearest(_dashes(flag), known)}")
        if not option.value:
            if equals:
                raise ConfigurationError(f"{flag} takes no value, but got {value!r}")
            found[option.name] = []
            continue
        if not equals:
            if not left or _dashes(left[0]) in known:
                raise ConfigurationError(f"{flag} needs a value: {flag} {option.value}")
            value = left.pop(0)
        if option.name in found and not option.repeats:
            raise ConfigurationError(f"{flag} is given twice: {found[option.name][0]} and {value}")
        found.setdefault(option.name, []).append(value)
    return found, rest


def complete(options: Sequence[Option], words: Sequence[str], prefix: str) -> list[str]:
    """Completions of `prefix` after `words`: the values of an option, or further options."""
    known = {flag: option for option in options for flag in option.flags}
    before = known.get(_dashes(words[-1])) if words else None
    if before is not None and before.value:
        return [choice for choice in before.choices if choice.startswith(prefix)]
    flag, equals, value = prefix.partition("=")
    if equals and _dashes(flag) in known:
        return [f"{flag}={each}" for each in known[_dashes(flag)].choices if each.startswith(value)]
    used = {known[word].name for word in map(_dashes, words) if word in known}
    open_to = [option for option in options if option.repeats or option.name not in used]
    return [option.flags[-1] for option in open_to if option.flags[-1].startswith(_dashes(prefix))]


def describe(options: Iterable[Option]) -> str:
    """The options, formatted for a help page."""
    rows = [(option.usage, option.summary) for option in options]
    width = max(len(usage) for usage, _ in rows)
    return "\n".join(f"  {usage:<{width}}  {summary}" for usage, summary in rows)


def _dashes(flag: str) -> str:
    """Turns `--num_processes` into `--num-processes`; as in Accelerate, both are accepted."""
    return flag.replace("_", "-") if flag.startswith("--") else flag


def _nearest(word: str, known: Mapping[str, Option]) -> str:
    longer = [flag for flag in known if flag.startswith(word)]
    usual = dict.fromkeys(option.flags[-1] for option in known.values())
    return did_you_mean(longer[-1] if longer else word, known) or f"; it has {', '.join(usual)}"
