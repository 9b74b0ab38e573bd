"""How `scripts/test-changed` chooses tests."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CHANGED = runpy.run_path(str(ROOT / "scripts" / "changed.py"))


def test_each_folder_of_the_package_has_tests_that_are_there() -> None:
    folders = {path.name for path in (ROOT / CHANGED["PACKAGE"]).iterdir() if (path / "__init__.py").exists()}
    assert set(CHANGED["SEEN_BY"]) == folders
    named = {path for tests in CHANGED["SEEN_BY"].values() for path in tests} | {*CHANGED["ALWAYS"]}
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_what_is_run_elsewhere_is_there() -> None:
    assert [begin for begin in CHANGED["ELSEWHERE"] if not (ROOT / begin).exists()] == []
    scripts = [words.split()[0] for text in CHANGED["ELSEWHERE"].values() for words in text.split(", ")]
    assert [script for script in scripts if not (ROOT / script).is_file()] == []


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (["notebook_accel/errors.py", "tests/cli/test_main.py"], ["tests"]),
        (["tests/conftest.py"], ["tests"]),
        (["tests/cli/test_main.py", "tests/cli/test_gone.py"], ["tests/cli/test_main.py"]),
        (["tests/cli/conftest.py", "tests/cli/test_main.py"], ["tests/cli"]),
        (["docs/index.md", "tests/browser/page.py"], []),
        (["scripts/lib/uv.py"], ["tests/test_uv.py"]),
    ],
)
def test_a_change_is_seen_by(changed: list[str], expected: list[str]) -> None:
    assert CHANGED["tests"](changed) == expected


def test_what_is_left_out_is_named() -> None:
    assert CHANGED["elsewhere"](["docs/index.md", "tests/cli/test_main.py"]) == ["scripts/test-docs"]
