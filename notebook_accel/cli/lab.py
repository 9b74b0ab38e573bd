"""`notebook-accel lab`: opens JupyterLab on the examples."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from notebook_accel.errors import ConfigurationError

_PACKAGE = Path(__file__).parents[1]
_DEFAULT = "notebook-accel-examples"


def examples() -> Path:
    """The folder of the examples: in the package, or beside it in a checkout."""
    return next(folder for folder in (_PACKAGE / "examples", _PACKAGE.parent / "examples") if folder.is_dir())


def copy(folder: Path) -> list[str]:
    """Copies the examples that the folder does not have yet; returns their names.

    Raises:
        ConfigurationError: The folder cannot be written to.
    """
    copied = []
    try:
        for source in sorted([*examples().iterdir(), *(examples() / "recipes").iterdir()]):
            name = source.relative_to(examples())
            if source.suffix in (".ipynb", ".py") and not (folder / name).exists():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, folder / name)
                copied.append(str(name))
    except OSError as error:
        raise ConfigurationError(f"the examples cannot be copied to {folder}: {error.strerror}") from error
    return copied


@click.command("lab", context_settings={"ignore_unknown_options": True})
@click.argument("folder", default=_DEFAULT, type=click.Path(file_okay=False, path_type=Path))
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def command(folder: Path, options: tuple[str, ...]) -> None:
    """Open JupyterLab on the examples.

    They are copied to FOLDER, by default `notebook-accel-examples` in the current folder; existing files are not
    changed. OPTIONS, such as --no-browser, are passed to JupyterLab.
    """
    if str(folder).startswith("-"):
        folder, options = Path(_DEFAULT), (str(folder), *options)
    if find_spec("jupyterlab") is None:
        raise ConfigurationError("JupyterLab is not installed: pip install jupyterlab")
    for name in copy(folder):
        click.echo(f"copied {folder / name}", err=True)
    os.execv(sys.executable, [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={folder.resolve()}", *options])
