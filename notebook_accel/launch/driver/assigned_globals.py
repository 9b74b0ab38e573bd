"""Finds the global names of the notebook that a function assigns, which its rank does in a process of its own."""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

from notebook_accel.launch.wire import pickling


def notice(function: Callable[..., Any], ranks: int) -> str:
    """What to tell the user about the names that a function assigns on `ranks` ranks; empty if it assigns none."""
    names = sorted(find(function))
    if not names:
        return ""
    name = getattr(_python_function(function), "__name__", "the function")
    plural = "s" * (len(names) > 1)
    return (
        f"{name} assigns the global name{plural} {', '.join(names)} in {'each' if ranks > 1 else 'the'} rank's own "
        f"process, and this notebook keeps its own: have {name} return the value{plural}, to find them in the list "
        f"that notebook_launcher returns{'' if ranks > 1 else ', or pass in_process=True to run it in this process'}"
    )


def find(function: Callable[..., Any]) -> set[str]:
    """The names that a function of the notebook declares `global` and assigns, with the functions that it calls."""
    own = vars(sys.modules["__main__"])
    found: set[str] = set()
    seen: set[FunctionType] = set()
    left = [_python_function(function)]
    while left:
        each = left.pop()
        if not isinstance(each, FunctionType) or each.__globals__ is not own or each in seen:
            continue
        seen.add(each)
        for code in pickling.codes(each.__code__):
            for instruction in dis.get_instructions(code):
                if instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                    found.add(instruction.argval)
                elif instruction.opname == "LOAD_GLOBAL":
                    left.append(own.get(instruction.argval))
    return found


def _python_function(function: Any) -> Any:
    """The function in a partial, a method or a decorated function; other callables themselves."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, MethodType):
            function = function.__func__
        elif isinstance(function, FunctionType) and "__wrapped__" in vars(function):
            function = vars(function)["__wrapped__"]
        else:
            return function
