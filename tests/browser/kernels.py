"""The kernels that a front end can start: this environment's own, and older ipykernels in environments of their own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

NEWEST = "newest"
"""The ipykernel that is installed here."""
OLDER = {
    "7.3": ("ipykernel==7.3.*",),
    "6.29": ("ipykernel==6.29.*", "nest-asyncio>=1.6"),
}
"""What is installed, without what it depends on: all else is lent by this environment."""
_ENVIRONMENTS = Path(sys.prefix) / "kernels"
_BUILT = "built-from"


def install(names: list[str], folder: Path) -> None:
    """Puts a kernelspec of each name into a folder that is on `JUPYTER_PATH`."""
    for name in names:
        python = Path(sys.executable) if name == NEWEST else _python(name)
        spec = {
            "argv": [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            "display_name": f"ipykernel {name}",
            "language": "python",
        }
        place = folder / "kernels" / name
        place.mkdir(parents=True)
        (place / "kernel.json").write_text(json.dumps(spec))


def _python(name: str) -> Path:
    """The interpreter of an older kernel's environment, which stays for the next time."""
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
