"""How `scripts/lib/uv.py` hands pip's settings on to uv."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

UV = runpy.run_path(str(Path(__file__).parents[1] / "scripts" / "lib" / "uv.py"))


def test_the_environment_comes_before_the_command_and_that_before_the_rest() -> None:
    listed = "\n".join(
        (
            "install.timeout='20'",
            "global.timeout='10'",
            "global.index-url='https://one/simple'",
            ":env:.index-url='https://two/simple?a=b'",
            "download.index-url='https://three/simple'",
        )
    )
    assert UV["settings"](listed) == {"timeout": "20", "index-url": "https://two/simple?a=b"}


def test_each_setting_has_its_variable() -> None:
    given = {
        "extra-index-url": "\nhttps://one\nhttps://two",
        "find-links": "/a /b",
        "no-input": "1",
        "constraint": "/c /d",
    }
    assert UV["environ"](given) == {
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_COMPILE_BYTECODE": "1",
        "UV_INDEX": "https://one https://two",
        "UV_FIND_LINKS": "/a,/b",
        "UV_CONSTRAINT": "/c /d",
    }


def test_a_setting_of_unknown_meaning_is_none_for_uv() -> None:
    with pytest.raises(ValueError, match="pip's settings are not for uv: only-binary"):
        UV["environ"]({"only-binary": ":all:", "index-url": "https://one"})
