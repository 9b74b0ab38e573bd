"""Compare two releases of Accelerate: which names, parameters, and defaults have changed, and what this package has.

    .venv/bin/python scripts/accelerate_changes.py           # the installed release, and the newest one
    .venv/bin/python scripts/accelerate_changes.py 1.14.0    # that release, and the installed one

The other release is installed in a temporary folder. Each line says what changed in Accelerate, and whether the name is
here, Accelerate's own, refused, or missing. Exits with 1 if a changed name is missing, or if this package has the name
without a new parameter.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
Signatures = dict[str, dict[str, str]]
"""By name, such as `utils.set_seed` or `accelerator.Accelerator.prepare`, the parameters and their defaults."""
LIST = """
import importlib, inspect, json, pathlib, sys, warnings
warnings.simplefilter("ignore")
import accelerate
root, found = pathlib.Path(accelerate.__file__).parent, {}
def add(name, function):
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return
    # A default that is an object shows its address.
    found[name] = {each.name: repr(each.default).partition(" at 0x")[0] for each in parameters}
for path in sorted(root.rglob("*.py")):
    parts = path.relative_to(root).with_suffix("").parts
    inner = ".".join(parts).removesuffix("__init__").rstrip(".")
    if parts[0] in ("commands", "test_utils") or inner in ("memory_utils", "utils.rich"):
        continue
    module = importlib.import_module(f"accelerate.{inner}".rstrip("."))
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        add(f"{inner}.{name}", value)
        for method, each in vars(value).items() if inspect.isclass(value) else ():
            if not method.startswith("_") and callable(each):
                add(f"{inner}.{name}.{method}", each)
print(json.dumps([accelerate.__version__, found]))
"""


def signatures(folder: str = "") -> tuple[str, Signatures]:
    """Return the version and the signatures of the release in a folder, or of the installed one."""
    environ = {**os.environ, "PYTHONPATH": folder}
    done = subprocess.run([sys.executable, "-c", LIST], env=environ, check=True, capture_output=True, text=True)
    version, found = json.loads(done.stdout.splitlines()[-1])
    return version, found


def changes(old: Signatures, new: Signatures) -> Iterator[tuple[str, str, str]]:
    """Yield each change: the name, what happened, and the parameter that is new, if one is."""
    for name in sorted({*old, *new}):
        if name not in old:
            yield name, "is new", ""
        elif name not in new:
            yield name, "is gone", ""
        else:
            before, after = old[name], new[name]
            yield from (
                (name, f"has the new parameter {each}={after[each]}", each) for each in sorted(after.keys() - before)
            )
            yield from ((name, f"no longer has the parameter {each}", "") for each in sorted(before.keys() - after))
            for each in sorted(before.keys() & after):
                if before[each] != after[each]:
                    yield name, f"has another default: {each}={after[each]} in place of {before[each]}", ""


def answer(name: str, parameter: str) -> str:
    """Return what this package has of a name."""
    module, _, last = name.rpartition(".")
    kind = module.rpartition(".")[2]
    if kind[:1].isupper():  # a method
        module, last = module.rpartition(".")[0], kind
    outcome: str = runpy.run_path(str(ROOT / "scripts" / "generate.py"))["outcome"](module, last)
    if outcome != "works":
        return outcome
    value = getattr(importlib.import_module(f"notebook_accel.{module}".rstrip(".")), last)
    if kind[:1].isupper():
        value = getattr(value, name.rpartition(".")[2], None)
        if value is None:
            return "missing"
    known = inspect.signature(value).parameters
    if parameter and parameter not in known and "kwargs" not in known:
        return f"without {parameter}"
    return "here"


def main() -> None:
    """Print the changes."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    sys.path.insert(0, str(ROOT))
    with tempfile.TemporaryDirectory() as folder:
        requirement = f"accelerate=={wanted}" if wanted else "accelerate"
        command = [
            sys.executable,
            "-m",
            "uv",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--target",
            folder,
            requirement,
        ]
        subprocess.run(command, check=True)
        installed, other = signatures(), signatures(folder)
    (before, old), (after, new) = (other, installed) if wanted else (installed, other)
    print(f"Accelerate {before} → {after}, and what notebook_accel has")
    lacking = False
    for name, what, parameter in changes(old, new):
        found = "" if what == "is gone" else answer(name, parameter)
        lacking |= found == "missing" or found.startswith("without")
        print(f"{name} {what}{f': {found}' if found else ''}")
    raise SystemExit(lacking)


if __name__ == "__main__":
    main()
