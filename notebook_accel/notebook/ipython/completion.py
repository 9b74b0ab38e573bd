"""Completes lines of magics, through the hooks that the installed version of IPython has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

Completer = Callable[["InteractiveShell", "list[str]", str], "list[str]"]
"""Called with the words between the magic and the cursor, and the start of the current word; returns full words."""
_IDENTIFIER = "notebook_accel"
_FIRST = 1000
"""A priority above those of IPython's own matchers."""


def register(shell: InteractiveShell, completers: Mapping[str, Completer]) -> None:
    """Completes lines that begin with a key of `completers`, such as `%accelerate`."""
    unregister(shell, completers)
    inner: Any = shell.Completer
    try:
        inner.custom_matchers.append(_matcher(shell, completers))
    except ImportError:  # before IPython 8.6
        inner.magic_arg_matchers.append(_line_matcher(shell, completers))


def unregister(shell: InteractiveShell, completers: Mapping[str, Completer]) -> None:
    """Stops completing these lines."""
    del completers
    inner: Any = shell.Completer
    for matchers in (inner.custom_matchers, getattr(inner, "magic_arg_matchers", [])):
        matchers[:] = [each for each in matchers if getattr(each, "matcher_identifier", "") != _IDENTIFIER]


def _matcher(shell: InteractiveShell, completers: Mapping[str, Completer]) -> Any:
    from IPython.core.completer import SimpleCompletion, context_matcher

    def match(context: Any) -> Any:
        prefix, found = _find(shell, completers, context.text_until_cursor)
        return {
            "completions": [SimpleCompletion(each, type="magic") for each in found],
            "matched_fragment": prefix,
            "suppress": bool(found),
            "ordered": True,
        }

    return context_matcher(priority=_FIRST, identifier=_IDENTIFIER)(match)


def _line_matcher(shell: InteractiveShell, completers: Mapping[str, Completer]) -> Any:
    """The same for older versions: takes the line, and returns replacements for the word that IPython sees there."""

    def match(line: str) -> list[str]:
        del line  # the line continues after the cursor
        inner: Any = shell.Completer
        prefix, found = _find(shell, completers, inner.text_until_cursor)
        done = len(prefix) - len(
            inner.splitter.split_line(inner.text_until_cursor)
        )  # IPython may split the word that we complete
        return [each[done:] for each in found]

    match.matcher_identifier = _IDENTIFIER  # type: ignore[attr-defined]
    return match


def _find(shell: InteractiveShell, completers: Mapping[str, Completer], line: str) -> tuple[str, list[str]]:
    """The start of the last word on a line, and its completions."""
    words, prefix = line.split(), ""
    if words and not line[-1].isspace():
        prefix = words.pop()
    complete = completers.get(words[0]) if words else None
    return prefix, complete(shell, words[1:], prefix) if complete else []
