"""Puts small faults into a copy of the product, one at a time, and runs the tests that must see each.

    scripts/mutate                every fault of tests/faults/*.toml
    scripts/mutate views ranks    the faults of these files only
    scripts/mutate -k loader      the faults whose names contain a text
    scripts/mutate --list         their names

A fault is seen when pytest fails (exit status 1) with it. The same tests are run first without faults, and must pass.
Ends with 1 unless every fault was seen. `tests/faults/README.md` describes a row.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = {
    "tests/cluster": ".venv-cluster",
    "tests/frameworks": ".venv-frameworks",
    "tests/tpu": ".venv-tpu",
}
"""Where the tests of a folder run, if not in .venv; the script of that name has to have made it."""
LIMIT = 300
"""Seconds for the tests of one fault. A fault that makes them hang longer counts as seen."""
TEST_LIMIT = 60
"""Seconds for one test that sets no limit of its own: less than elsewhere, since with many a fault a test hangs. All
have to keep within it without a fault."""


@dataclass(frozen=True)
class Fault:
    """One row of a table."""

    area: str
    """The name of the table's file."""
    name: str
    """What goes wrong, as a sentence."""
    file: str
    """The file of the product that has the fault, from the root."""
    find: str
    """A text that occurs there exactly once."""
    replace: str
    """What stands there instead."""
    tests: tuple[str, ...]
    """The tests that must fail, as pytest is given them; at least one has to."""


def faults() -> list[Fault]:
    """All rows of all tables."""
    found = []
    for table in sorted((ROOT / "tests" / "faults").glob("*.toml")):
        for row in tomllib.loads(table.read_text(encoding="utf-8"))["fault"]:
            found.append(Fault(table.stem, **{**row, "tests": tuple(row["tests"])}))
    return found


def copy(folder: Path) -> None:
    """Copies the working tree, as git sees it, and lends the copy the environments."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    for name in listed.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    for environment in ROOT.glob(".venv*"):
        (folder / environment.name).symlink_to(environment)


def run_tests(folder: Path, tests: tuple[str, ...], limit: float | None) -> tuple[int, str]:
    """Runs tests in a copy until one fails; returns pytest's worst exit status and what it printed."""
    by_environment: dict[str, list[str]] = {}
    for test in tests:
        home = next((env for prefix, env in ENVIRONMENTS.items() if test.startswith(f"{prefix}/")), ".venv")
        by_environment.setdefault(home, []).append(test)
    status, output = 0, ""
    for home, chosen in by_environment.items():
        command = [
            str(folder / home / "bin" / "python"),
            "-m",
            "pytest",
            "-x",
            "-q",
            "--no-header",
            "-p",
            "no:cacheprovider",
            f"--timeout={TEST_LIMIT}",
            "--nightly",
        ]
        # The copy comes before the tree that the environment was made for, also in kernels and ranks.
        environ = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        if home == ".venv-tpu":
            environ["PJRT_DEVICE"] = "CPU"
        try:
            ended = subprocess.run(
                [*command, "--override-ini", "testpaths=", *chosen],
                cwd=folder,
                env=environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=limit,
            )
        except subprocess.TimeoutExpired as error:
            return 1, f"not within {limit} s\n{error.stdout!r}"
        status, output = max(status, ended.returncode), output + ended.stdout + ended.stderr
        if status:
            break
    return status, output


def kill_leftovers(folder: Path) -> None:
    """Kills what a fault has left behind, such as ranks that outlive their parent, in however many sessions."""
    mark = f"PYTHONPATH={folder}\0".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (entry / "environ").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)


def check(folder: Path, fault: Fault) -> tuple[bool, str]:
    """Runs a fault's tests with it; returns whether it was seen, and the verdict in words."""
    path = folder / fault.file
    text = path.read_text(encoding="utf-8")
    if (count := text.count(fault.find)) != 1:
        return False, f"NOT SEEN (its text occurs {count} times in {fault.file})"
    path.write_text(text.replace(fault.find, fault.replace), encoding="utf-8")
    try:
        status, output = run_tests(folder, fault.tests, LIMIT)
    finally:
        path.write_text(text, encoding="utf-8")
        kill_leftovers(folder)
    if status == 0:
        return False, "NOT SEEN (no test failed)"
    if status != 1:
        return False, f"NOT SEEN (pytest ended with {status}):\n{output[-2000:]}"
    hung = "from pytest-timeout" in output or output.startswith("not within ")
    return True, "seen, as a test hung" if hung else "seen"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("areas", nargs="*", help="files of tests/faults, without .toml; all by default")
    parser.add_argument("-k", dest="word", default="", help="only faults whose names contain this")
    parser.add_argument("--list", action="store_true", help="print the names, and run nothing")
    options = parser.parse_args()
    chosen = [
        fault
        for fault in faults()
        if (not options.areas or fault.area in options.areas) and options.word.casefold() in fault.name.casefold()
    ]
    if not chosen:
        parser.error("no fault matches")
    if options.list:
        print(*(f"{fault.area}: {fault.name}" for fault in chosen), sep="\n")
        return 0
    missed, began = 0, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutate-") as name:
        folder = Path(name)
        copy(folder)
        tests = tuple(dict.fromkeys(test for fault in chosen for test in fault.tests))
        status, output = run_tests(folder, tests, None)
        if status:
            print(f"the tests fail without any fault:\n{output[-4000:]}")
            return 1
        print(f"without any fault the tests pass, in {time.monotonic() - began:.1f} s", flush=True)
        for fault in chosen:
            at = time.monotonic()
            seen, verdict = check(folder, fault)
            missed += not seen
            print(f"{fault.area}: {fault.name}: {verdict}, {time.monotonic() - at:.1f} s", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} faults seen, in {(time.monotonic() - began) / 60:.1f} min")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
