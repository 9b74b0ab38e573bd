"""The kernels that a front end can start: this environment's own, and older ipykernels in environments of their own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests import environments

NEWEST = "newest"
"""The ipykernel that is installed here."""
OLDER = ("7.3", "6.29")


def install(names: list[str], folder: Path) -> None:
    """Puts a kernelspec of each name into a folder that is on `JUPYTER_PATH`."""
    for name in names:
        python = Path(sys.executable) if name == NEWEST else environments.python(name)
        spec = {
            "argv": [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            "display_name": f"ipykernel {name}",
            "language": "python",
        }
        place = folder / "kernels" / name
        place.mkdir(parents=True)
        (place / "kernel.json").write_text(json.dumps(spec))
