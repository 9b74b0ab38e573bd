"""The options of a magic: declared in a table, from which they are parsed, explained and completed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from notebook_accel.errors import ConfigurationError, did_you_mean


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option of a magic."""

    flags: tuple[str, ...]
    """How it is written, the usual form last: `("-n", "--num-processes")`."""
    summary: str
    """What it does, in one line."""
    value: str = ""
    """How the help calls its value; empty where it has none."""
    choices: Sequence[str] = ()
    """Values to offer; others may be right too."""
    repeats: bool = False
    """Whether it may be given several times."""

    @property
    def name(self) -> str:
        """By which it is known: `num_processes`."""
        return self.flags[-1].lstrip("-").replace("-", "_")

    @property
    def usage(self) -> str:
        """As the help shows it."""
        return f"{', '.join(self.flags)} {self.value}".rstrip()


def parse(magic: str, options: Iterable[Option], words: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Parses a line.

    Args:
        magic: What the line belongs to, as messages name it.
        options: Those that it has.
        words: The words of the line.

    Returns:
        The values of each option that is there, by its name; and the words that belong to none.

    Raises:
        ConfigurationError: There is no such option, or it lacks its value, or has one too many.
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
                raise ConfigurationError(f"{flag} takes no value, so not {value!r}")
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
    """What may stand where `prefix` begins, after `words`: the values of an option, or further options."""
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
    """The options, as a help page lists them."""
    rows = [(option.usage, option.summary) for option in options]
    width = max(len(usage) for usage, _ in rows)
    return "\n".join(f"  {usage:<{width}}  {summary}" for usage, summary in rows)


def _dashes(flag: str) -> str:
    """`--num_processes` is `--num-processes`, as in Accelerate."""
    return flag.replace("_", "-") if flag.startswith("--") else flag


def _nearest(word: str, known: Mapping[str, Option]) -> str:
    longer = [flag for flag in known if flag.startswith(word)]
    usual = dict.fromkeys(option.flags[-1] for option in known.values())
    return did_you_mean(longer[-1] if longer else word, known) or f"; it has {', '.join(usual)}"
