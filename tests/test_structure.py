"""The layout of the package: no ring of imports, folders that say what they are, processes that hold only their own."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import notebook_accel
from tests.live_notebook import OWN_SERVER, UNTRAINED, Notebook

PACKAGE = Path(notebook_accel.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
TESTS = Path(__file__).parent
DRIVER = ("driver", "plan", "engines", "journal", "show", "job")
OTHERS = ("server", "tpu", "rank", "cluster")
PRIVATE = re.compile(r"(?:^|\w\.)(_[A-Za-z]\w*)")
"""In a string: a name by itself, as `setattr` takes it, or an attribute, as code has it."""
NOT_OURS = {
    **dict.fromkeys(("_models", "_optimizers", "_schedulers", "_dataloaders"), "Accelerate's users read them"),
    **dict.fromkeys(
        ("_reset_state", "_add_dataloader", "_remove_dataloader", "_set_sync_gradients"), "Accelerate's users call them"
    ),
    "_is_accelerate_prepared": "Accelerate's users read it",
    "_repr_html_": "IPython calls it",
    "_dynamo": "a module of torch has that name",
}
"""Private names that tests may reach for though the package has them too, and why."""


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def module(file: Path) -> str:
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module(file) for file in FILES}


def graph() -> dict[str, set[str]]:
    """What each file imports of the package, late and for type checkers too."""
    found: dict[str, set[str]] = {}
    for file in FILES:
        mine = found[module(file)] = set()
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(PACKAGE.name):
                full = {f"{node.module}.{each.name}" for each in node.names}
                mine |= {name if name in MODULES else node.module for name in full}
        mine.discard(module(file))
    return found


def test_no_import_leads_back_to_where_it_came_from() -> None:
    try:
        TopologicalSorter(graph()).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def writes_elsewhere(file: Path) -> list[str]:
    """The statements of a file that bind a name of another of our modules."""
    tree = parsed(file)
    ours = {
        name.asname or name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for name in node.names
        if f"{node.module}.{name.name}" in MODULES
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


def bound(tree: ast.Module) -> set[str]:
    """The private names that a file gives to something."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                found.add(name)
    return {name for name in found if name.startswith("_") and not name.startswith("__")}


def reached_for(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """What a file imports, the attributes it uses, and the same in its strings, each with its line.

    What the classes of the file give to themselves is left out.
    """
    own = bound(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name) if name in own:
                pass
            case ast.Attribute(attr=name):
                yield node.lineno, name
            case ast.alias(name=name) | ast.ImportFrom(module=str(name)):
                yield from ((node.lineno, part) for part in name.split("."))
            case ast.Constant(value=str(text)):
                yield from ((node.lineno, name) for name in PRIVATE.findall(text))


def test_tests_reach_for_no_private_name() -> None:
    ours = {name for file in FILES for name in bound(parsed(file))}
    assert ours > NOT_OURS.keys(), "some names need no exception any more"
    private = ours - NOT_OURS.keys()
    found = [
        f"{file.relative_to(TESTS)}:{line}: {name}"
        for file in sorted(TESTS.rglob("*.py"))
        if not private.isdisjoint(
            re.findall(r"\w+", file.read_text(encoding="utf-8"))
        )  # else there is no need to parse it
        for line, name in reached_for(parsed(file))
        if name in private
    ]
    advice = "test what the public names do, hand the value in, or make the name public:"
    assert not found, "\n".join([advice, *found])


def test_each_folder_says_what_it_is() -> None:
    folders = {file.parent for file in FILES}
    silent = [folder for folder in folders if not ast.get_docstring(parsed(folder / "__init__.py"))]
    assert silent == []


def test_a_folder_that_lists_its_files_lists_all_of_them() -> None:
    """What names most of them is a list, and a reader takes it to be whole."""
    incomplete = {}
    for folder in {file.parent for file in FILES}:
        words = set(re.findall(r"\w+", ast.get_docstring(parsed(folder / "__init__.py")) or ""))
        there = {path.stem for path in FILES if path.parent == folder and path.name != "__init__.py"}
        there |= {path.parent.name for path in FILES if path.parent.parent == folder}
        if len(there) > 2 and len(there - words) < 0.4 * len(there) and there - words:
            incomplete[str(folder.relative_to(PACKAGE))] = sorted(there - words)
    assert incomplete == {}


def test_files_that_the_text_names_are_there() -> None:
    """In the package, and in the pages that explain it; what Python and others have is theirs."""
    pages = [TESTS.parent / "docs" / "inside.md", TESTS.parent / "CONTRIBUTING.md", *(TESTS / "faults").glob("*.md")]
    ours = (PACKAGE, TESTS, *(TESTS.parent / name for name in ("scripts", "examples")))
    there = [str(file) for folder in ours for file in folder.rglob("*.py")]
    missing = [
        f"{file.relative_to(TESTS.parent)}: {named}"
        for file in (*pages, *FILES)
        for named in re.findall(r"`([a-z_/]+\.py)`", file.read_text(encoding="utf-8"))
        if named.removesuffix(".py") not in sys.stdlib_module_names and not named.startswith("torch_xla/")
        if not any(path.endswith(f"/{named}") for path in there)
    ]
    assert missing == []


def test_what_looks_at_a_clock_stands_where_it_is_run_by_itself() -> None:
    marked = [path for path in TESTS.rglob("test_*.py") if re.search(r"mark\.clock\b", path.read_text())]
    assert {path.parent for path in marked} <= {TESTS / "kernel", TESTS / "train" / "step_timing"}


def test_kernel_and_ranks_hold_only_what_is_theirs() -> None:
    notebook = Notebook(env=OWN_SERVER)  # a base server's fork has what training needs
    try:
        notebook.check(f"{UNTRAINED}import sys\nfrom notebook_accel import notebook_launcher")
        held = notebook.value(
            "ranks = notebook_launcher(lambda: ' '.join(sys.modules), num_processes=2, device='cpu')\n"
            "(' '.join(sys.modules), *ranks)"
        )
        training = notebook.value("""
        def hold():
            import gc
            from notebook_accel import Accelerator

            return gc.isenabled(), *sys.modules

        notebook_launcher(hold, num_processes=1, device="cpu")[0]
        """)
    finally:
        notebook.close()
        notebook.clean()
    kernel, *ranks = (names.split() for names in held)

    def of(modules: list[str], folders: tuple[str, ...]) -> list[str]:
        begins = tuple(f"notebook_accel.launch.{folder}" for folder in folders)
        return [name for name in modules if name.startswith(begins)]

    assert training[0], "the import has left the garbage collector off"
    assert not {"torch.distributed.tensor", "sympy"} & {*training}, "each takes half a second to import"
    assert of(kernel, DRIVER) != []
    assert of(kernel, OTHERS) == []
    assert "torch" not in kernel
    for modules in ranks:
        assert of(modules, ("rank",)) != []
        assert of(modules, DRIVER) == []
