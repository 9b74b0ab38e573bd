"""Completes and explains the names of a rank, for the Tab key and the help of the notebook."""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from IPython.core.completer import provisionalcompleter, rectify_completions
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.dir2 import dir2

_ATTRIBUTE = re.compile(r"(?:^|[^\w.)\]])((?:[^\W\d]\w*\.)+)(\w*)$")
_MOST = 500
"""Completions that are sent to the notebook."""


class Completions(NamedTuple):
    """What may stand at the cursor."""

    fragment: str
    """The text before the cursor that a completion replaces."""
    found: Sequence[tuple[str, str]]
    """Each with its kind, such as `instance`."""


def complete(code: str, at: int) -> Completions:
    """Completes code at a position."""
    with _quietly():
        attributes = _complete_attribute(code[:at])
        return attributes if attributes is not None else _complete_otherwise(code, at)


def inspect(name: str, detail_level: int, options: dict[str, Any]) -> dict[str, str] | None:
    """The help for a name, by MIME type; `None` if this rank doesn't have the name."""
    with _quietly():
        try:
            found: dict[str, str] = _shell().object_inspect_mime(name, detail_level, **options)
        except KeyError:
            return None
        return found


def _shell() -> Any:
    return InteractiveShell.instance()


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Discards what an attribute prints when it is looked up."""
    discarded = io.StringIO()
    with contextlib.redirect_stdout(discarded), contextlib.redirect_stderr(discarded), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _complete_attribute(before: str) -> Completions | None:
    """Completes `a.b.c`; `None` if that isn't what stands before the cursor, or `a` isn't a name of the rank.

    IPython's completer doesn't look into objects whose class defines `__getattr__`, such as modules of torch.
    """
    match = _ATTRIBUTE.search(before)
    if match is None:
        return None
    names, start = match[1].rstrip(".").split("."), match[2]
    try:
        value = _shell().user_ns[names[0]]
        for name in names[1:]:
            value = getattr(value, name)
        words = [word for word in dir2(value) if word.startswith(start)]
    except Exception:  # the user's own attributes may raise anything
        return None
    words = [word for word in words if start.startswith("_") or not word.startswith("_")] or words
    return Completions(start, [(word, "instance") for word in words[:_MOST]])


def _complete_otherwise(code: str, at: int) -> Completions:
    completer = _shell().Completer
    completer.use_jedi = False  # the notebook's own completer asks it, which takes long at first
    with provisionalcompleter():
        found = list(rectify_completions(code, completer.completions(code, at)))[:_MOST]
    fragment = code[found[0].start : at] if found else ""
    return Completions(fragment, [(each.text, each.type or "") for each in found])
