"""The layout of the package: no ring of imports, folders to read at a glance, processes that hold only their own."""

from __future__ import annotations

import ast
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import notebook_accel
from tests.live_notebook import Notebook

PACKAGE = Path(notebook_accel.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
MOST_FILES = 15
"""Side by side in one folder, `__init__` apart."""
MEANS_THE_SAME = {
    "base",  # what the others in its folder have in common
    "command",  # a command of the command line
    "environment",  # environment variables
    "front_end",
    "fsdp",
    "main",  # where a process begins
    "rendezvous",
    "tpus",
}
"""Names of files that occur more than once, and mean the same thing in each place."""
DRIVER = ("driver", "plan", "engines", "journal", "show", "job")
OTHERS = ("server", "tpu", "rank", "cluster")


def module(file: Path) -> str:
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def graph() -> dict[str, set[str]]:
    """What each file imports of the package, late and for type checkers too."""
    known = {module(file) for file in FILES}
    found: dict[str, set[str]] = {}
    for file in FILES:
        mine = found[module(file)] = set()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(PACKAGE.name):
                full = {f"{node.module}.{each.name}" for each in node.names}
                mine |= {name if name in known else node.module for name in full}
        mine.discard(module(file))
    return found


def test_no_import_leads_back_to_where_it_came_from() -> None:
    try:
        TopologicalSorter(graph()).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def writes_elsewhere(file: Path) -> list[str]:
    """The statements of a file that bind a name of another of our modules."""
    known = {module(each) for each in FILES}
    tree = ast.parse(file.read_text(encoding="utf-8"))
    ours = {
        name.asname or name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for name in node.names
        if f"{node.module}.{name.name}" in known
    }
    targets = [
        (node, target)
        for node in ast.walk(tree)
        for target in (node.targets if isinstance(node, (ast.Assign, ast.Delete)) else [getattr(node, "target", None)])
    ]
    return [
        f"{module(file)}: {ast.unparse(node)}"
        for node, target in targets
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id in ours
    ]


def test_no_module_writes_the_variables_of_another() -> None:
    assert [each for file in FILES for each in writes_elsewhere(file)] == []


def test_a_folder_can_be_read_at_a_glance() -> None:
    counts = Counter(file.parent for file in FILES if file.name != "__init__.py")
    assert {str(folder.relative_to(PACKAGE)): count for folder, count in counts.items() if count > MOST_FILES} == {}


def test_each_folder_says_what_it_is() -> None:
    folders = {file.parent for file in FILES}
    silent = [folder for folder in folders if not ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))]
    assert silent == []


def test_a_name_of_a_file_stands_for_one_thing() -> None:
    counts = Counter(file.stem for file in FILES if not file.stem.startswith("__"))
    assert {name for name, count in counts.items() if count > 1} == MEANS_THE_SAME


def test_kernel_and_ranks_hold_only_what_is_theirs() -> None:
    notebook = Notebook()
    try:
        notebook.check("import sys\nfrom notebook_accel import notebook_launcher")
        held = notebook.value(
            "ranks = notebook_launcher(lambda: ' '.join(sys.modules), num_processes=2, device='cpu')\n"
            "(' '.join(sys.modules), *ranks)"
        )
    finally:
        notebook.close()
        notebook.clean()
    kernel, *ranks = (names.split() for names in held)

    def of(modules: list[str], folders: tuple[str, ...]) -> list[str]:
        begins = tuple(f"notebook_accel.launch.{folder}" for folder in folders)
        return [name for name in modules if name.startswith(begins)]

    assert of(kernel, DRIVER) != []
    assert of(kernel, OTHERS) == []
    assert "torch" not in kernel
    for modules in ranks:
        assert of(modules, ("rank",)) != []
        assert of(modules, DRIVER) == []
