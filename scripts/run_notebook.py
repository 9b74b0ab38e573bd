"""Run a notebook in a Jupyter kernel and print what its cells say; stop at the first cell that fails."""

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from traitlets.config import Config

ROOT = Path(__file__).parents[1]
HOME = "/home/me/notebook-accel"
"""What saved outputs call this checkout, wherever it is."""
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def main() -> int:
    """Run the notebook named on the command line in an empty folder, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--timeout", type=int, default=300, help="seconds that one cell may take")
    parser.add_argument("--save", action="store_true", help="write the outputs into the notebook if all cells run")
    parser.add_argument("--expect", action="append", default=[], help="words that the outputs must hold; repeatable")
    arguments = parser.parse_args()

    notebook = nbformat.read(arguments.notebook, as_version=4)
    started = time.monotonic()
    print(f"{arguments.notebook}, in a Jupyter kernel")
    try:
        with tempfile.TemporaryDirectory() as folder:
            run(notebook, folder, arguments.timeout)
    except CellExecutionError:
        # The cell's outputs, its traceback among them, are printed already.
        print(f"\n{arguments.notebook}: a cell failed", file=sys.stderr)
        return 1
    except (CellTimeoutError, DeadKernelError) as error:
        print(f"\n{arguments.notebook}: {error}", file=sys.stderr)
        return 1
    print(f"\nall cells ran in {time.monotonic() - started:.1f} s")
    said = "\n".join(text_of(output) for cell in notebook.cells for output in cell.get("outputs", []))
    if missing := [words for words in arguments.expect if words not in said]:
        print(f"{arguments.notebook}: the outputs do not hold {missing}", file=sys.stderr)
        return 1
    if arguments.expect and "Warning" in said:
        print(f"{arguments.notebook}: the outputs hold a warning", file=sys.stderr)
        return 1
    if arguments.save:
        arguments.notebook.write_text(nbformat.writes(notebook).replace(str(ROOT), HOME) + "\n")
    return 0


def run(notebook: nbformat.NotebookNode, folder: str, timeout: int) -> None:
    """Execute the cells of a notebook in a new kernel, printing as they go."""
    client = NotebookClient(
        notebook,
        timeout=timeout,
        coalesce_streams=True,
        record_timing=False,
        resources={"metadata": {"path": folder}},
        # Unix sockets, because a kernel warns about TCP, which is not encrypted.
        config=Config(KernelManager={"transport": "ipc", "connection_file": f"{folder}/kernel.json"}),
    )
    with client.setup_kernel():
        for index, cell in enumerate(notebook.cells):
            print_heading(cell, index)
            cell.get("outputs", []).clear()
            try:
                client.execute_cell(cell, index)
            finally:
                print_outputs(cell)


def print_heading(cell: nbformat.NotebookNode, index: int) -> None:
    """Print the first line of a code cell, or the heading of a markdown cell."""
    first, *rest = cell.source.splitlines() or [""]
    if cell.cell_type == "code":
        print(f"\n[{index}] {first}{' …' if rest else ''}", flush=True)
    elif first.startswith("#"):
        print(f"\n{first.lstrip('# ')}", flush=True)


def print_outputs(cell: nbformat.NotebookNode) -> None:
    """Print a cell's outputs, indented under its heading."""
    for output in cell.get("outputs", []):
        for line in text_of(output).rstrip("\n").splitlines():
            print(f"    {line}", flush=True)


def text_of(output: dict[str, Any]) -> str:
    """Return what an output says in plain text; colors stay where a terminal can show them."""
    match output["output_type"]:
        case "stream":
            text = output["text"]
        case "error":
            text = "\n".join(output["traceback"])
        case _:
            text = output["data"].get("text/plain", "")
    return text if sys.stdout.isatty() else ANSI.sub("", text)


if __name__ == "__main__":
    sys.exit(main())
