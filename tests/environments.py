"""Environments beside the one that runs the tests: other versions of what makes a notebook, all else lent by this one.

`python -m tests.environments colab` makes one if need be, and prints its interpreter's path.
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
    "colab": (
        "ipykernel==6.17.1",
        "ipython==7.34.0",
        "ipywidgets==7.7.1",
        "jupyter_client==7.4.9",
        "matplotlib-inline==0.1.7",
        "pyzmq==26.2.1",
        "tornado==6.5.1",
        "traitlets==5.7.1",
        "widgetsnbextension==3.6.10",
        # What these need, and newer ones do not.
        "backcall==0.2.0",
        "decorator==5.3.1",
        "entrypoints==0.4",
        "ipython-genutils==0.2.0",
        "nest-asyncio==1.6.0",
        "pickleshare==0.7.5",
    ),
}
# Kaggle's image starts from Colab's, and brings newer widgets.
OLDER["kaggle"] = (
    *(each for each in OLDER["colab"] if not each.startswith(("ipywidgets", "widgetsnbextension"))),
    "ipywidgets==8.1.5",
    "jupyterlab_widgets==3.0.13",
    "widgetsnbextension==4.0.13",
)
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
