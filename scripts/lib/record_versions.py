"""Notes which versions a suite has passed with, for the table in docs/compatibility.md: `record_versions.py newest`.

Runs in the environment of the suite, and writes tests/passed_versions.json, of which scripts/generate makes the table.
"""

from __future__ import annotations

import json
import platform
import sys
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RECORD = Path(__file__).resolve().parents[2] / "tests" / "passed_versions.json"
PACKAGES = (
    *("torch", "anywidget", "click", "cloudpickle", "ipykernel", "ipython", "ipywidgets", "jupyterlab", "notebook"),
    *("marimo", "numpy", "nvidia-ml-py", "platformdirs", "psutil", "pyyaml", "rich", "safetensors", "threadpoolctl"),
    *("tqdm", "accelerate"),
)
"""What the package depends on, the front ends, and Accelerate, with which tests compare."""


def main(suite: str) -> None:
    found = {"date": date.today().isoformat(), "Python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    RECORD.write_text(json.dumps({**record, suite: found}, indent=4, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
