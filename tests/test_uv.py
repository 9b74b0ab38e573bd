"""How `scripts/lib/uv.py` hands pip's settings on to uv."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import zipfile
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


OWN = {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_COMPILE_BYTECODE": "1"}
"""What uv is told in any case."""


@pytest.mark.parametrize(
    ("given", "variables", "options"),
    [
        ({"no-input": "1", "progress-bar": "off"}, {}, []),
        ({"extra-index-url": "\nhttps://one\nhttps://two"}, {"UV_INDEX": "https://one https://two"}, []),
        ({"find-links": "/a /b"}, {"UV_FIND_LINKS": "/a,/b"}, []),
        ({"constraint": "/c /d"}, {}, ["--constraint", "/c", "--constraint", "/d"]),
        ({"only-binary": ":all:"}, {}, ["--only-binary", ":all:"]),
        ({"no-binary": "a,b"}, {}, ["--no-binary", "a", "--no-binary", "b"]),
        ({"no-index": "true", "pre": "yes"}, {"UV_PRERELEASE": "allow"}, ["--no-index"]),
        ({"no-index": "false", "pre": "0"}, {}, []),
        ({"no-cache-dir": "off"}, {"UV_NO_CACHE": "1"}, []),
        ({"cache-dir": "/e"}, {"UV_CACHE_DIR": "/e/uv"}, []),
        ({"no-compile": "1"}, {"UV_COMPILE_BYTECODE": "0"}, []),
        ({"default-timeout": "9", "retries": "2"}, {"UV_HTTP_TIMEOUT": "9", "UV_HTTP_RETRIES": "2"}, []),
    ],
    ids=str,
)
def test_a_setting_is_handed_on(given: dict[str, str], variables: dict[str, str], options: list[str]) -> None:
    assert UV["translated"](given) == ({**OWN, **variables}, options)


def test_a_setting_that_uv_cannot_be_told_is_named() -> None:
    with pytest.raises(ValueError, match="uv can't be told what pip is: prefer-binary"):
        UV["translated"]({"prefer-binary": "1", "index-url": "https://one"})


def wheel(folder: Path, version: str) -> None:
    """The smallest package there is."""
    info = f"tiny-{version}.dist-info"
    with zipfile.ZipFile(folder / f"tiny-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")


def test_what_pip_is_told_holds_beside_what_the_script_asks_for(tmp_path: Path) -> None:
    """uv itself installs: no index, a folder of wheels, and one list of constraints from pip, one from the script."""
    for version in ("1.0", "2.0", "3.0"):
        wheel(tmp_path, version)
    (tmp_path / "theirs.txt").write_text("tiny<3\n")
    (tmp_path / "ours.txt").write_text("tiny>1\n")
    given = {
        "no-index": "1",
        "find-links": str(tmp_path),
        "constraint": str(tmp_path / "theirs.txt"),
        "no-cache-dir": "1",
    }
    variables, options = UV["translated"](given)
    target = tmp_path / "target"
    install = [sys.executable, "-m", "uv", "--no-config", "pip", "install", "--quiet", "--target", target]
    ran = subprocess.run(
        [*install, *options, "--constraint", tmp_path / "ours.txt", "tiny"],
        env={**{name: value for name, value in os.environ.items() if not name.startswith("UV_")}, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert [path.name for path in target.glob("*.dist-info")] == ["tiny-2.0.dist-info"]
