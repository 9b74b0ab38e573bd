"""The user's text as it is sent and drawn: without what only a terminal understands, and of a bounded length."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import TypeVar

_FOR_TERMINALS = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]|[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]"
)
"""Colors, links and cursor movements (ECMA-48), control characters that draw nothing, and surrogates.

Surrogates stand for bytes that are not text; a text with one cannot be encoded, and so not be sent to a browser."""
_COLORS = re.compile(r"\x1b\[[0-9;:]*m")
_NOT_DRAWN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Of Unicode: controls, formats such as those that reverse the order, surrogates, what has no meaning, line breaks."""
_Item = TypeVar("_Item")


def plain(text: str) -> str:
    """The user's text without codes that only a terminal understands, and without what cannot be encoded."""
    return _FOR_TERMINALS.sub("", text)


def visible(text: str) -> str:
    """The text with an escape in place of each character that draws nothing or moves others, also of each line break.

    Colors are left out. Nothing in the result can act on a terminal, or hide a part of the text from its reader.
    """
    return "".join(map(_shown, _COLORS.sub("", text)))


def quoted(text: str, most: int) -> str:
    """At most `most` characters of a text that someone else has written, each line after a bar: `| so`.

    Since the bars are in front of all lines, nothing in the text can pretend to stand outside.
    """
    return "\n".join(f"| {visible(line)}".rstrip() for line in both_ends(text, most).rstrip("\n").split("\n"))


def _shown(character: str) -> str:
    if character == "\t" or unicodedata.category(character) not in _NOT_DRAWN:
        return character
    return character.encode("unicode_escape", "surrogatepass").decode()


def both_ends(text: str, most: int) -> str:
    """The text itself, or `most` characters of it: the first and the last ones."""
    if len(text) <= most:
        return text
    tail = most // 4
    head = most - tail
    return f"{text[:head]} … [{len(text) - most:,} characters left out] … {text[len(text) - tail :]}"


def ends(items: Sequence[_Item], most: int) -> tuple[list[_Item], list[_Item]]:
    """The first and the last items, `most` of them together; if there are no more, the first list has them all."""
    if len(items) <= most:
        return list(items), []
    tail = most // 2
    return list(items[: most - tail]), list(items[len(items) - tail :])
