"""Explains an error about a name that the notebook defines, but that was not sent to the rank."""

from __future__ import annotations

import re
from dataclasses import replace

from notebook_accel.events import Raised
from notebook_accel.launch.wire import notebook_names

_MISSING = re.compile(
    r"NameError: name '(\w+)' is not defined|AttributeError: module '__main__' has no attribute '(\w+)'|"
    r"(?:_pickle\.PicklingError|AttributeError): Can't get attribute '(\w+)' on <module '__main__'|"
    r"ImportError: cannot import name '(\w+)' from '__main__'"
)
_MISSING_KEY = re.compile(r"KeyError: '(\w+)'")
_NAMESPACE = re.compile(r"\b(globals|vars)\(|\b__dict__\b")
"""What a line has that looks up a name in the dictionary of `__main__`."""


def with_notebook(raised: Raised) -> Raised:
    """The error with a sentence on what to do; unchanged if it is not about a name of the notebook."""
    found = _MISSING.match(raised.text)
    if found is None and raised.frames and _NAMESPACE.search(raised.frames[-1].line):
        found = _MISSING_KEY.match(raised.text)
    name = "" if found is None else next(filter(None, found.groups()))
    explanation = notebook_names.explanation(name)
    return replace(raised, text=f"{raised.text}\n{explanation}") if explanation else raised
