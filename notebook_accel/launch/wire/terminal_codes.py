"""Removes what cannot be drawn from text, before ranks send it and views draw it."""

from __future__ import annotations

import re

_FOR_TERMINALS = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]|[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]"
)
"""Colors, links and cursor movements (ECMA-48), control characters that draw nothing, and surrogates.

Surrogates stand for bytes that are not text; a text with one cannot be encoded, and so not be sent to a browser."""


def plain(text: str) -> str:
    """The user's text without codes that only a terminal understands, and without what cannot be encoded."""
    return _FOR_TERMINALS.sub("", text)
