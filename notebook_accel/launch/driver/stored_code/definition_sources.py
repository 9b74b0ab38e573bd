"""The source of functions and classes that the notebook defines, and how it differs from that of a launch."""

from __future__ import annotations

import ast
import difflib
import inspect
import linecache
import textwrap
from collections.abc import Iterable, Mapping
from types import FunctionType
from typing import Any

from notebook_accel.launch.wire import pickling


def collect(names: Iterable[str]) -> dict[str, str]:
    """The source of the notebook's definitions of these names, as far as it is known."""
    found = {name: _source(pickling.find(name)) for name in sorted(names)}
    return {name: text for name, text in found.items() if text}


def changes(before: Mapping[str, str]) -> str:
    """A unified diff from these definitions to the notebook's; empty if those that it has are the same."""
    now = collect(before)
    lines: list[str] = []
    for name, text in now.items():
        lines += difflib.unified_diff(
            before[name].splitlines(), text.splitlines(), f"{name}, as launched", f"{name}, as it is now", lineterm=""
        )
    return "\n".join(lines)


def _source(definition: Any) -> str:
    """The source of a function or class, without trailing blanks; empty if it is not known."""
    try:
        text = _class_source(definition) if isinstance(definition, type) else inspect.getsource(definition)
    except (OSError, TypeError, SyntaxError):
        return ""
    return "\n".join(line.rstrip() for line in textwrap.dedent(text).splitlines())


def _class_source(cls: type) -> str:
    """The source of a class from a cell, which `inspect` finds by its methods only, and from Python 3.13 on."""
    methods = [inspect.unwrap(each) for each in vars(cls).values() if isinstance(each, FunctionType)]
    for filename in {method.__code__.co_filename for method in methods}:
        text = "".join(linecache.getlines(filename))
        classes = [
            node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name == cls.__name__
        ]
        if classes:
            last = classes[-1]
            first = min([last.lineno, *(each.lineno for each in last.decorator_list)])
            return "\n".join(text.splitlines()[first - 1 : last.end_lineno])
    return ""
