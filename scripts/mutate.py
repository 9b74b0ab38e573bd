"""Puts small faults into a copy of the product, chosen at random, one at a time, and names those that no test sees.

    scripts/mutate                          20 faults in the files that have changed since main
    scripts/mutate --count 5 FILE...        5 in these files
    scripts/mutate --seed 7                 the same ones again

A fault turns a comparison, an operator, a number, a condition, or a `return` into another, or leaves out a statement.
It is seen if a test of the file's folder fails with it, or hangs. The same tests are run first without faults, and must
pass. Ends with 1 unless every fault was seen. Some faults change nothing that a user could notice, so read the list.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 300
"""Seconds for the tests of one fault. A fault that makes them hang longer counts as seen."""
TEST_LIMIT = 60
"""Seconds for one test that sets no limit of its own: less than elsewhere, since with many a fault a test hangs. All
have to keep within it without a fault."""


_OPPOSITES: dict[type[ast.AST], type[ast.AST]] = {}
for _one, _other in (
    (ast.Lt, ast.LtE),
    (ast.Gt, ast.GtE),
    (ast.Eq, ast.NotEq),
    (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn),
    (ast.And, ast.Or),
    (ast.Add, ast.Sub),
    (ast.Mult, ast.FloorDiv),
):
    _OPPOSITES |= {_one: _other, _other: _one}


@dataclass(frozen=True)
class Fault:
    """A piece of a file, and what stands there instead."""

    file: str
    """From the root."""
    line: int
    start: int
    """Where the piece begins and ends, in bytes."""
    end: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {' '.join(self.before.split())}  →  {' '.join(self.after.split())}"


def changed(node: ast.AST) -> Iterator[ast.AST]:
    """The small changes of one node: each is what stands in its place."""
    opposite: Callable[[ast.AST], ast.AST] = lambda operator: _OPPOSITES[type(operator)]()  # noqa: E731
    match node:
        case ast.Compare(left, [operator], right) if type(operator) in _OPPOSITES:
            yield ast.Compare(left, [opposite(operator)], right)
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(opposite(operator), values)
        case ast.BinOp(left, operator, right) if type(operator) in _OPPOSITES:
            yield ast.BinOp(left, opposite(operator), right)
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value)):
            yield ast.Constant(value + 1)
        case ast.IfExp(test, body, orelse):
            yield ast.IfExp(test, orelse, body)
        case ast.Return(ast.AST() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield ast.Return(ast.Constant(None))
        case ast.Expr(ast.Call()) | ast.AugAssign() | ast.Raise():
            yield ast.Pass()
        case ast.Continue():
            yield ast.Break()
        case ast.Break():
            yield ast.Continue()


def faults(file: str, text: str) -> Iterator[Fault]:
    """All small faults of a file."""
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in _code(ast.parse(text)):
        for other in changed(node):
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            before, after = text.encode()[start:end].decode(), ast.unparse(ast.fix_missing_locations(other))
            yield Fault(file, node.lineno, start, end, before, f"({after})" if isinstance(other, ast.expr) else after)


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run: neither types, nor what only type checkers read, nor assertions, nor parts of texts."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            is_for_types = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
            if isinstance(child, ast.AST) and not is_for_types and not isinstance(child, (ast.Assert, ast.JoinedStr)):
                if isinstance(child, (ast.stmt, ast.expr)):
                    yield child
                yield from _code(child)


def tests_of(file: str) -> str:
    """The folder of tests that mirrors a file's own, or the nearest one above it that there is."""
    folder = Path("tests", *Path(file).parts[1:-1])
    while not any((ROOT / folder).glob("test_*.py")):
        folder = folder.parent
    return str(folder)


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


def run_tests(folder: Path, tests: str, limit: float | None) -> tuple[int, str]:
    """Runs tests in a copy until one fails; returns pytest's exit status and what it printed."""
    options = ("-x", "-q", "--no-header", "-p", "no:cacheprovider", f"--timeout={TEST_LIMIT}", "--nightly")
    try:
        ended = subprocess.run(
            [folder / ".venv" / "bin" / "python", "-m", "pytest", *options, "--override-ini", "testpaths=", tests],
            cwd=folder,
            # The copy comes before the tree that the environment was made for, also in kernels and ranks.
            env={**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        return 1, f"not within {limit} s"
    return ended.returncode, ended.stdout + ended.stderr


def kill_leftovers(folder: Path) -> None:
    """Kills what a fault has left behind, such as ranks that outlive their parent, in however many sessions."""
    mark = f"PYTHONPATH={folder}\0".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (entry / "environ").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)


def is_seen(folder: Path, fault: Fault) -> bool:
    """Runs a fault's tests with it, and restores the copy."""
    path = folder / fault.file
    text = path.read_bytes()
    path.write_bytes(text[: fault.start] + fault.after.encode() + text[fault.end :])
    try:
        status, _ = run_tests(folder, tests_of(fault.file), LIMIT)
    finally:
        path.write_bytes(text)
        kill_leftovers(folder)
    return status != 0


def changed_files() -> list[str]:
    """The files of the package that have changed since this branch left main, or in the last commit."""
    base, head = _git("merge-base", "HEAD", "main"), _git("rev-parse", "HEAD")
    since = base if base and base != head else ["HEAD~1"]
    return _git("diff", "--name-only", "--diff-filter=d", *since, "--", "notebook_accel/*.py")


def _git(*arguments: str) -> list[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.split()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "files", nargs="*", help="files of the package, from the root; by default those that have changed"
    )
    parser.add_argument("--count", type=int, default=20, help="how many faults")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10_000, help="chooses the faults")
    options = parser.parse_args()
    files = options.files or changed_files()
    found = [fault for file in files for fault in faults(file, (ROOT / file).read_text(encoding="utf-8"))]
    if not found:
        parser.error("no file of the package has changed")
    chosen = random.Random(options.seed).sample(found, min(options.count, len(found)))
    print(f"seed {options.seed}: {len(chosen)} of {len(found)} possible faults in {len(files)} files", flush=True)
    missed, began = 0, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutate-") as name:
        folder = Path(name)
        copy(folder)
        for tests in sorted({tests_of(fault.file) for fault in chosen}):
            status, output = run_tests(folder, tests, None)
            if status:
                print(f"{tests} fails without any fault:\n{output[-4000:]}")
                return 1
        print(f"without any fault the tests pass, in {time.monotonic() - began:.1f} s", flush=True)
        for fault in chosen:
            seen = is_seen(folder, fault)
            missed += not seen
            print(f"{'seen' if seen else 'NOT SEEN'}  {fault}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} faults seen, in {(time.monotonic() - began) / 60:.1f} min")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
