"""What the package says it needs is what its files import, no more and no less."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import distribution, packages_distributions, requires
from pathlib import Path

import yaml

import notebook_accel

PACKAGE = Path(notebook_accel.__file__).parent
ROOT = Path(__file__).parents[1]
WITH_IPYKERNEL = {"ipython", "tornado", "traitlets"}
"""Imported where a kernel or a Jupyter server runs: their own packages bring them."""
IF_THERE = {
    "accelerate",
    "aim",
    "amdsmi",
    "clearml",
    "comet-ml",
    "dvclive",
    "fastmcp",
    "fastmcp-slim",
    "jupyter-server",
    "marimo",
    "mlflow",
    "optuna",
    "pandas",
    "pyarrow",
    "swanlab",
    "torchao",
    "torchdata",
    "trackio",
    "transformers",
    "wandb",
}
"""Used where they are installed; who asks for what needs one of them is told its name."""
NOT_IMPORTED = {"ipykernel", "ipywidgets"}
"""The kernel itself, and what anywidget imports: named for their least versions."""
REGISTERED_WITH_FSSPEC = {"gcsfs", "s3fs"}
"""fsspec imports them for `gs://` and `s3://`."""


def imports(tree: ast.AST) -> Iterator[str]:
    """The top packages of all imports that run, wherever in a file they are."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
        elif not isinstance(node, ast.expr):  # which holds no statement
            yield from imports(node)


@cache
def imported() -> set[str]:
    """The distributions that the package's files import from."""
    found = {name for file in PACKAGE.rglob("*.py") for name in imports(ast.parse(file.read_text()))}
    homes = packages_distributions()
    names = found - sys.stdlib_module_names - {"__main__", "notebook_accel"}
    return {normal(homes[name][0] if name in homes else name) for name in names}


def declared(extra: str = "") -> set[str]:
    """The distributions that the package, or an extra of it, says it needs."""
    lines = requires("notebook-accel") or []
    mine = [line for line in lines if (f"extra == '{extra}'" in line if extra else "extra ==" not in line)]
    return {normal(re.split(r"[\s<>=!~;\[(]", line, maxsplit=1)[0]) for line in mine}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_what_is_imported_is_declared_and_nothing_else() -> None:
    of_extras = declared("tpu") | declared("cluster") | declared("remote") | declared("mcp")
    always = imported() - IF_THERE - WITH_IPYKERNEL - of_extras | {"torch"}
    assert declared() == always | NOT_IMPORTED
    assert declared("cluster") == {"ray"} <= imported()
    assert declared("mcp") == {"jupyter-server-mcp"}, "which brings fastmcp"
    assert declared("remote") - imported() == REGISTERED_WITH_FSSPEC


def test_a_notebook_imports_the_launcher_without_what_only_launches_need() -> None:
    code = (
        "import sys, threading\n"
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "InteractiveShell.instance()\n"
        "threading.Thread.start = lambda self: None\n"  # which imports the rest beside the notebook
        "from notebook_accel import notebook_launcher\n"
        "print(*(name for name in sys.modules if name.startswith('notebook_accel')))"
    )
    held = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "notebook_accel.notebook.magics.accelerate" in held, "it was attached to the shell"
    first_needed = {"insight", "launch.driver.launch", "launch.job.job", "launch.plan.plan", "launch.show.output"}
    assert not {f"notebook_accel.{name}" for name in first_needed} & set(held)


def test_a_launcher_is_imported_without_what_takes_long() -> None:
    code = "from notebook_accel import notebook_launcher, Job, attach, report; import sys; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    slow = {"torch", "numpy", "IPython", "rich", "click", "yaml", "tqdm", "asyncio", "anywidget", "pynvml", "pandas"}
    assert slow & set(modules) == set()


def test_an_extra_that_a_text_or_a_script_names_exists() -> None:
    """Those that scripts install, and those that documents, examples and messages tell a user to install."""
    files = [
        path
        for folder in ("README.md", "docs", "examples", "scripts", "notebook_accel", "binder", ".ci")
        for path in ([ROOT / folder] if (ROOT / folder).is_file() else (ROOT / folder).rglob("*"))
        if path.suffix in ("", ".md", ".ipynb", ".py", ".sh", ".txt") and path.is_file()
    ]
    named = {
        (str(path.relative_to(ROOT)), extra)
        for path in files
        for extras in re.findall(r"(?:notebook[-_]accel|[\"' ]\.)\[([a-z][a-z, ]*)\]", path.read_text(encoding="utf-8"))
        for extra in re.split(r", *", extras)
    }
    extras = set(distribution("notebook-accel").metadata.get_all("Provides-Extra"))
    assert {(path, extra) for path, extra in named if extra not in extras} == set()
    assert {extra for _, extra in named} == extras


def test_the_bill_of_materials_lists_the_javascript_that_is_bundled() -> None:
    """esbuild bundles the two that both front ends import; webpack adds its loaders, and writes their licenses."""
    locked = json.loads((ROOT / "extension/package-lock.json").read_text())["packages"]
    bundled = {name: locked[f"node_modules/{name}"]["version"] for name in ("lit-html", "uplot")}
    added = json.loads((ROOT / "extension/lab/built/static/third-party-licenses.json").read_text())["packages"]
    bundled |= {each["name"]: each["versionInfo"] for each in added}
    listed = json.loads((ROOT / "extension/bundled.cdx.json").read_text())["components"]
    assert {each["name"]: each["version"] for each in listed} == bundled


def test_the_recipe_for_conda_forge_is_of_this_version_and_these_dependencies() -> None:
    recipe = yaml.safe_load((ROOT / "conda-forge/recipe.yaml").read_text())
    assert recipe["context"]["version"] == notebook_accel.__version__
    names = {line.split()[0].replace("pytorch", "torch") for line in recipe["requirements"]["run"]}
    assert names == declared() | {"python"}
