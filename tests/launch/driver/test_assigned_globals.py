"""Which global names of the notebook a function assigns."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from notebook_accel.launch.driver import assigned_globals

SOURCE = """
import functools

def train():
    global model, history
    model = 1
    helper()

def helper():
    def inner():
        global count
        count = 1
    global scale
    del scale
    train()

def quiet():
    local = 1
    return local

class Trainer:
    def fit(self):
        global fitted
        fitted = 1

@functools.wraps(train)
def decorated():
    return train()
"""


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names of a notebook that has run the source."""
    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    exec(compile(SOURCE, "cell", "exec"), vars(main))
    return vars(main)


CASES: dict[str, tuple[Callable[[dict[str, Any]], Callable[..., Any]], set[str]]] = {
    "a function and those it calls": (lambda names: names["train"], {"model", "count", "scale"}),
    "a partial": (lambda names: functools.partial(names["train"], 1), {"model", "count", "scale"}),
    "a decorated function": (lambda names: names["decorated"], {"model", "count", "scale"}),
    "a method": (lambda names: names["Trainer"]().fit, {"fitted"}),
    "one that assigns nothing": (lambda names: names["quiet"], set()),
    "one of another module": (lambda names: functools.wraps, set()),
    "one without code": (lambda names: len, set()),
}


@pytest.mark.parametrize("name", CASES)
def test_assigned_names_are_found(name: str, notebook: dict[str, Any]) -> None:
    choose, expected = CASES[name]
    assert assigned_globals.find(choose(notebook)) == expected


def test_the_notice_says_what_to_do(notebook: dict[str, Any]) -> None:
    text = assigned_globals.notice(notebook["train"], 1)
    assert text.startswith("train assigns the global names count, model, scale in the rank's own process")
    assert "have train return the values, to find them in the list" in text
    assert "in_process=True" in text
    assert assigned_globals.notice(notebook["quiet"], 1) == ""
    assert "in_process=True" not in assigned_globals.notice(notebook["train"], 2)
