"""Removes codes that only terminals understand from text, before ranks send it and views draw it."""

from __future__ import annotations

import re

_FOR_TERMINALS = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\].*?(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]|[\x00-\x08\x0b-\x1f\x7f]"
)
"""Colours, links and moves of the cursor (ECMA-48), and characters that draw nothing."""


def plain(text: str) -> str:
    """Words of the user's without what only a terminal understands."""
    return _FOR_TERMINALS.sub("", text)
