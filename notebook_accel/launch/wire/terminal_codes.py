"""Removes codes that only terminals understand from text, before ranks send it and views draw it."""

from __future__ import annotations

import re

_FOR_TERMINALS = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\].*?(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]|[\x00-\x08\x0b-\x1f\x7f]"
)
"""Colours, links and cursor movements (ECMA-48), and control characters that draw nothing."""


def plain(text: str) -> str:
    """The user's text without the codes that only a terminal understands."""
    return _FOR_TERMINALS.sub("", text)
