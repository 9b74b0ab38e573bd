"""The fenced blocks of a page, and how each is to be run.

    ```python     a cell of the page's notebook, in the order of the page
    ```bash       a script, in the folder that the notebook stands in
    ```yaml       a configuration file
    ```text       a picture; nothing to run

Before a block may stand `<!-- not run: REASON -->`, or `<!-- before: CODE -->`: a cell that the reader is spared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(
    r"(?:^<!-- (?P<told>(?:(?!-->).)*)-->\n)?^```(?P<kind>\S*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """One of them."""

    line: int
    """Where it begins on its page."""
    kind: str
    code: str
    before: str = ""
    """What is run first, in the notebook."""
    skipped: str = ""
    """Why it is not run."""


def read(page: Path) -> Iterator[Block]:
    """The blocks of a page, from top to bottom."""
    text = page.read_text()
    for found in _BLOCK.finditer(text):
        told = found["told"] or ""
        word, _, rest = told.partition(":")
        assert word in ("", "not run", "before"), f"{page.name}: a comment says {told!r}"
        yield Block(
            line=text.count("\n", 0, found.start("code")),
            kind=found["kind"],
            code=found["code"],
            before=rest.strip() if word == "before" else "",
            skipped=rest.strip() if word == "not run" else "",
        )
