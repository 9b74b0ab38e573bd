"""The source of the notebook's definitions, and what has changed in it."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable

import pytest

from notebook_accel.launch.driver import stored_code

CELL = """
import functools

@functools.lru_cache(maxsize=3)
def cached(x):
    return x

@functools.total_ordering
class Model:
    size = 3

    def __lt__(self, other):
        return True

def train():
    def inner():
        pass
    return Model, cached
"""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Runs a cell in `__main__`."""
    main = vars(sys.modules["__main__"])
    for name in ("cached", "Model", "train", "other"):
        monkeypatch.setitem(main, name, None)
    numbers = iter(range(100))

    def run(text: str) -> None:
        filename = f"<cell {next(numbers)}>"
        monkeypatch.setitem(linecache.cache, filename, (len(text), None, text.splitlines(keepends=True), filename))
        exec(compile(text, filename, "exec"), main)

    return run


def test_functions_and_classes_have_the_source_of_their_cell(run: Callable[[str], None]) -> None:
    run(CELL)
    found = stored_code.definitions_of(["Model", "cached", "train", "len", "nothing"])
    assert set(found) == {"Model", "cached", "train"}
    assert "".join(f"\n{text}\n" for text in (found["cached"], found["Model"], found["train"])) in CELL


def test_what_is_defined_again_alike_has_not_changed(run: Callable[[str], None]) -> None:
    run(CELL)
    before = stored_code.definitions_of(["Model", "cached", "train"])
    run("other = 1   \n" + CELL.replace("return x\n", "return x  \n"))
    assert stored_code.changes(before) == ""


def test_a_difference_is_a_unified_diff(run: Callable[[str], None]) -> None:
    run(CELL)
    before = stored_code.definitions_of(["Model", "cached", "train"])
    run(CELL.replace("size = 3", "size = 4"))
    lines = stored_code.changes(before).splitlines()
    assert lines[:2] == ["--- Model, as launched", "+++ Model, as it is now"]
    assert [line for line in lines[2:] if line[0] in "+-"] == ["-    size = 3", "+    size = 4"]


def test_what_the_notebook_does_not_define_is_not_compared(run: Callable[[str], None]) -> None:
    run(CELL)
    before = stored_code.definitions_of(["train"])
    del vars(sys.modules["__main__"])["train"]
    assert stored_code.changes({**before, "gone": "def gone(): ..."}) == ""
    vars(sys.modules["__main__"])["train"] = None  # what the fixture removes
