"""The code that is stored with a job that saves checkpoints, so that another kernel can launch it again."""

from __future__ import annotations

import ast
import difflib
import inspect
import linecache
import os
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import FunctionType
from typing import Any

from notebook_accel.config import LaunchConfig, remote_folders
from notebook_accel.launch.job.text import size, title
from notebook_accel.launch.journal.saved_launch import MOST_BYTES, SavedLaunch
from notebook_accel.launch.show import console
from notebook_accel.launch.wire import payload, pickling
from notebook_accel.launch.wire.payload import Payload


def save(
    config: LaunchConfig,
    packed: Payload,
    function: Callable[..., Any],
    name: str,
    mode: str,
    arguments: Callable[[], Sequence[bytes]],
) -> SavedLaunch:
    """Copies a launch that saves checkpoints. A call that is too large to be stored is left out, with a notice.

    Args:
        config: The settings of the launch.
        packed: Its packed call.
        function: Its function.
        name: The name of the function, for messages.
        mode: How the launch is made.
        arguments: Pickles the arguments of the call, as `payload.pack_arguments`.
    """
    qualified = getattr(function, "__qualname__", "")
    total = sum(packed.layout)
    saved = SavedLaunch(
        replace(config, notify=tuple(each for each in config.notify if isinstance(each, str))),
        checkpoint_dir=remote_folders.absolute(config.checkpoint_dir),
        name=name,
        mode=mode,
        function=qualified if pickling.find(qualified) is function else "",
        definitions=definitions_of(packed.names),
        folder=os.getcwd(),
    )
    if packed.unpacked is not None:
        return saved  # it runs in this process, and is not pickled
    if total > MOST_BYTES:
        console.current.notice(
            f"{title(name)} uses {size(total)} of data, but at most {size(MOST_BYTES)} is stored with a job, so "
            "%accelerate resume can't launch it again after a restart of the kernel. To continue, run the same launch "
            "with the same folder. To avoid this, load large data inside the function."
        )
        return saved
    return replace(saved, parts=payload.parts_of(packed), arguments=arguments())


def definitions_of(names: Iterable[str]) -> dict[str, str]:
    """The source of the notebook's definitions of these names, as far as it is known."""
    found = {name: _source(pickling.find(name)) for name in sorted(names)}
    return {name: text for name, text in found.items() if text}


def changes(before: Mapping[str, str]) -> str:
    """A unified diff from these definitions to the notebook's; empty if those that it has are the same."""
    now = definitions_of(before)
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
