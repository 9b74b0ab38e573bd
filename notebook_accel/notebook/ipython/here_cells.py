"""`%%here`: runs a cell in the kernel, even while cells run on the ranks.

An input transformer of IPython takes the line away, so that the rest runs as any other cell: with `await`, a value, and
its own lines in tracebacks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from notebook_accel.errors import ConfigurationError
from notebook_accel.notebook.ipython import tracebacks

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

NAME = "here"
_LINE = f"%%{NAME}"


def register(shell: InteractiveShell) -> None:
    """Adds `%%here` to a shell."""
    unregister(shell)
    ipython: Any = shell  # its type stubs lack many of its methods
    transforms: list[Any] = shell.input_transformer_manager.cleanup_transforms
    transforms.insert(0, _uncover)  # before the one that turns a cell with a magic into a call

    def here(line: str, body: str) -> None:
        """Runs a cell in the kernel, while `%accelerate cells on` makes the other cells run on the ranks."""
        if line.strip():
            error = ConfigurationError(f"{_LINE} takes no arguments, not {line.strip()!r}: write the code below it")
            tracebacks.shorten(error)
            raise error
        ipython.run_cell(body).raise_error()  # called by other code, or below another magic

    ipython.register_magic_function(here, "cell", NAME)


def unregister(shell: InteractiveShell) -> None:
    """Removes `%%here` from a shell."""
    transforms: list[Any] = shell.input_transformer_manager.cleanup_transforms
    if _uncover in transforms:
        transforms.remove(_uncover)
    shell.magics_manager.magics["cell"].pop(NAME, None)


def runs_here(source: str) -> bool:
    """Whether a cell begins with `%%here`."""
    return source.lstrip().partition("\n")[0].rstrip() == _LINE


def _uncover(lines: list[str]) -> list[str]:
    if not runs_here("".join(lines)):
        return lines
    first = next(number for number, line in enumerate(lines) if line.strip())
    rest = lines[first + 1 :]
    if rest and rest[0].startswith("%%"):
        return rest  # another magic, which has to come first
    return [*lines[:first], f"# {_LINE}\n", *rest]  # so that line numbers stay
