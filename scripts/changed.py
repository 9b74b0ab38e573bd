"""Print the tests that can see what has changed, a path a line; on stderr, what else there is to run.

git diff --name-only | .venv/bin/python scripts/changed.py
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "notebook_accel"
SEEN_BY = {
    "cli": ("tests/cli",),
    "config": ("tests/config", "tests/cli", "tests/notebook", "tests/kernel"),
    "events": ("tests/test_events.py", "tests/jupyter", "tests/launch", "tests/notebook", "tests/kernel"),
    "insight": ("tests/insight", "tests/jupyter", "tests/panel", "tests/kernel"),
    "jupyter": ("tests/jupyter",),
    "hardware": ("tests/hardware", "tests/launch", "tests/notebook"),
    "launch": ("tests/launch", "tests/kernel", "tests/cli", "tests/jupyter"),
    "notebook": ("tests/notebook", "tests/kernel"),
    "panel": ("tests/panel", "tests/notebook/views", "tests/jupyter", "tests/kernel"),
    "runs": ("tests/runs", "tests/kernel"),
    "train": ("tests/train", "tests/cli"),
}
"""The tests that a folder of the package is seen by."""
ALWAYS = (
    "tests/test_public.py",
    "tests/test_dependencies.py",
    "tests/test_accelerate_names.py",
)
"""What any change of the package is seen by."""
ELSEWHERE = {
    f"{PACKAGE}/launch/": "scripts/test-cluster, scripts/test-hosts",
    f"{PACKAGE}/jupyter/": "scripts/test-browser",
    f"{PACKAGE}/notebook/": "scripts/test-browser, scripts/test-versions",
    f"{PACKAGE}/panel/": "scripts/test-browser",
    f"{PACKAGE}/train/": "scripts/test-tpu, scripts/test-frameworks",
    "extension/": "scripts/check frontend, scripts/test-browser",
    "docs/": "scripts/test-docs",
    "examples/": "scripts/test-docs, scripts/demo",
    "README.md": "scripts/test-docs",
    "binder/": "scripts/test-binder",
    "tests/browser/": "scripts/test-browser",
    "tests/cluster/": "scripts/test-cluster",
    "tests/documents/": "scripts/test-docs",
    "tests/frameworks/": "scripts/test-frameworks",
    "tests/hosts/": "scripts/test-hosts",
    "tests/slurm/": "scripts/test-slurm",
    "tests/tpu/": "scripts/test-tpu",
}
"""The scripts to run, too, by what the changed path begins with."""


def tests(changed: Iterable[str]) -> list[str]:
    """The tests that can see changes to these files; all of them where one is everybody's."""
    found: set[str] = set()
    for path in changed:
        first, _, rest = path.partition("/")
        folder = rest.partition("/")[0]
        if first == PACKAGE and folder in SEEN_BY:
            found.update((*SEEN_BY[folder], *ALWAYS))
        elif first == PACKAGE or path in ("pyproject.toml", "constraints.txt"):
            return ["tests"]
        elif path.startswith("scripts/lib/uv"):
            found.add("tests/test_uv.py")
        elif path.startswith("scripts/changed"):
            found.add("tests/test_changed.py")
        elif path.startswith("scripts/mutate"):
            found.add("tests/test_mutate.py")
        elif first == "tests" and not elsewhere([path]) and path.endswith(".py"):
            found.add(path if Path(path).name.startswith("test_") else str(Path(path).parent))
    there = {path for path in found if (ROOT / path).exists()}
    return sorted(path for path in there if not any(str(parent) in there for parent in Path(path).parents))


def elsewhere(changed: Iterable[str]) -> list[str]:
    """The scripts that run what `scripts/test` leaves out."""
    return sorted({script for path in changed for begin, script in ELSEWHERE.items() if path.startswith(begin)})


def main() -> None:
    """Read changed paths from the standard input, and print the tests."""
    changed = sys.stdin.read().split("\n")
    for path in tests(changed):
        print(path)
    if others := elsewhere(changed):
        print(f"not run here, and able to see it: {'; '.join(others)}", file=sys.stderr)


if __name__ == "__main__":
    main()
