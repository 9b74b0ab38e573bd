"""Environments beside the one that runs the tests: other versions of what makes a notebook, all else lent by this one.

`python -m tests.environments 6.29` makes one if need be, and prints its interpreter's path.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

OLDER: dict[str, tuple[str, ...]] = {  # by their names: what is installed in each, without what that depends on
    "7.3": ("ipykernel==7.3.*",),
    "6.29": ("ipykernel==6.29.*", "nest-asyncio>=1.6"),
}
_ENVIRONMENTS = Path(sys.prefix) / "kernels"
_BUILT = "built-from"


def python(name: str) -> Path:
    """The interpreter of an environment, which stays for the next time."""
    place = _ENVIRONMENTS / name
    wanted = json.dumps([sys.prefix, sys.version, OLDER[name]])
    stamp = place / _BUILT
    if not stamp.exists() or stamp.read_text() != wanted:
        _build(place, OLDER[name])
        stamp.write_text(wanted)
    return place / "bin" / "python"


def _build(place: Path, packages: tuple[str, ...]) -> None:
    shutil.rmtree(place, ignore_errors=True)
    venv.create(place, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--python", place / "bin" / "python"]
    subprocess.run([*pip, "install", "--no-deps", *packages], check=True)
    # What is in the environment itself is found first; `addsitedir` reads the .pth files of the lender too.
    lender = sysconfig.get_path("purelib")
    [own] = place.glob("lib/python*/site-packages")
    (own / "lender.pth").write_text(f"import site; site.addsitedir({lender!r})\n")


if __name__ == "__main__":
    print(python(sys.argv[1]))
