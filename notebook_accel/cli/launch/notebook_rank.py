"""A rank that runs the code cells of a notebook in order: `python -m` this module, `HOW NOTEBOOK [ARGUMENTS]`.

Cells run in IPython, without a kernel. Magics and shell commands work, and the last expression of a cell is shown. Rank
0's output is collected, and saved after each cell if `--output` is given.
"""

from __future__ import annotations

import io
import json
import os
import sys
import tempfile
import types
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import notebook_accel
from notebook_accel.cli.launch.notebooks import MAY_FAIL, Cell, Notebook, source, tags
from notebook_accel.errors import ConfigurationError

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from notebook_accel.notebook.cells.cell_options import CellArguments

_INTERRUPTED = 130
_MAGIC = "%%accelerate"
_INLINE = "module://matplotlib_inline.backend_inline"
"""The backend of matplotlib that makes figures outputs of the notebook, as a kernel sets it; part of IPython."""


class Outputs:
    """Collects a cell's outputs, in the notebook's file format, and shows them on the standard streams."""

    def __init__(self) -> None:
        self._found: list[dict[str, Any]] = []
        self._count = 0
        self._shown: dict[str, list[dict[str, Any]]] = {}
        """By display ID, the outputs that later ones may replace."""

    def begin(self, cell: Cell, count: int) -> None:
        """Begins a cell, to which all further output belongs."""
        self._found = cell["outputs"] = []
        self._count = cell["execution_count"] = count

    def stream(self, name: str, text: str) -> None:
        if self._found and self._found[-1].get("name") == name:
            self._found[-1]["text"] += text
        elif text:
            self._found.append({"output_type": "stream", "name": name, "text": text})

    def display(self, data: Any, metadata: Any, transient: Any, update: bool) -> None:
        """Adds a rich output, or replaces an earlier one."""
        data, metadata = dict(data), dict(metadata or {})
        name = (transient or {}).get("display_id")
        if update:
            for earlier in self._shown.get(str(name), ()):
                earlier |= {"data": data, "metadata": metadata}
            return
        output = {"output_type": "display_data", "data": data, "metadata": metadata}
        self._found.append(output)
        if name:
            self._shown.setdefault(name, []).append(output)
        _print_plain(data)

    def result(self, data: Any, metadata: Any) -> None:
        """Adds the value of a cell's last line."""
        self._found.append(
            {"output_type": "execute_result", "data": data, "metadata": metadata, "execution_count": self._count}
        )
        _print_plain(data)

    def error(self, kind: str, value: str, traceback: list[str]) -> None:
        self._found.append({"output_type": "error", "ename": kind, "evalue": value, "traceback": traceback})

    def clear(self) -> None:
        del self._found[:]


def _print_plain(data: Any) -> None:
    text = data.get("text/plain")
    if text:
        out = _under(sys.stdout)
        out.write(f"{text}\n")
        out.flush()


def _under(stream: Any) -> Any:
    """The stream below a `_Tee`, or the stream itself."""
    return getattr(stream, "under", stream)


class _Tee(io.TextIOBase):
    """A standard stream that also collects its text."""

    def __init__(self, name: str, under: TextIO, outputs: Outputs) -> None:
        self._name = name
        self.under = under
        self._outputs = outputs

    def write(self, text: str) -> int:
        self._outputs.stream(self._name, text)
        return self.under.write(text)

    def flush(self) -> None:
        self.under.flush()

    def fileno(self) -> int:
        return self.under.fileno()

    def isatty(self) -> bool:
        return self.under.isatty()

    def writable(self) -> bool:
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.under.encoding


def make_shell(outputs: Outputs, module: types.ModuleType, folder: str) -> InteractiveShell:
    """Creates an IPython shell without a terminal, whose cells write their output to `outputs`.

    Args:
        outputs: Collects the output.
        module: The namespace of the cells.
        folder: A folder for IPython's files.
    """
    from IPython.core.displayhook import DisplayHook
    from IPython.core.displaypub import DisplayPublisher
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    class Publisher(DisplayPublisher):
        def publish(
            self, data: Any, metadata: Any = None, source: Any = None, *, transient: Any = None, update: Any = False,
            **_: Any
        ) -> None:  # fmt: skip
            outputs.display(data, metadata, transient, update)

        def clear_output(self, wait: Any = False) -> None:
            outputs.clear()

    class Hook(DisplayHook):
        def write_output_prompt(self) -> None:
            pass

        def write_format_data(self, format_dict: Any, md_dict: Any = None) -> None:
            outputs.result(format_dict, md_dict or {})

        def finish_displayhook(self) -> None:
            self._is_active = False

    class Shell(InteractiveShell):
        display_pub_class = Publisher
        displayhook_class = Hook

        def _showtraceback(self, etype: Any, evalue: Any, stb: Any) -> None:
            outputs.error(etype.__name__, str(evalue), list(stb))
            _under(sys.stderr).write("\n".join(stb) + "\n")

    config = Config()
    config.HistoryManager.enabled = False
    if not sys.stderr.isatty():
        config.InteractiveShell.colors = "nocolor"
    shell: InteractiveShell = Shell.instance(user_module=module, ipython_dir=folder, config=config)
    return shell


class RankCells:
    """The cells of one rank, of several."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell

    def run(self, code: str) -> Any:
        """Runs a cell; returns IPython's result.

        Raises:
            ConfigurationError: The options of an `%%accelerate` cell are not valid.
        """
        first, _, body = code.lstrip().partition("\n")
        if first.split()[:1] == [_MAGIC]:
            return self._run_on_ranks(first.partition(_MAGIC)[2], body)
        return self._shell.run_cell(code, store_history=True)  # type: ignore[no-untyped-call]

    def _run_on_ranks(self, line: str, body: str) -> Any:
        from notebook_accel import PartialState
        from notebook_accel.notebook.cells.cell_options import command, parse_ranks
        from notebook_accel.notebook.ipython import magic_commands
        from notebook_accel.utils import gather_object

        arguments: CellArguments | None = magic_commands.run(command, _MAGIC, line)
        if arguments is None:  # after --help
            return self._shell.run_cell("")  # type: ignore[no-untyped-call]
        state = PartialState()
        # What the notebook has defined by these names stays.
        for name, value in [
            ("rank", state.process_index),
            ("world_size", state.num_processes),
            ("device", state.device),
        ]:
            self._shell.user_ns.setdefault(name, value)
        members = parse_ranks("--ranks", arguments.ranks or "all", state.num_processes)
        code = body if state.process_index in members else ""
        result: Any = self._shell.run_cell(code, store_history=True)  # type: ignore[no-untyped-call]
        if arguments.name is not None:
            values = gather_object([result.result])
            self._shell.user_ns[arguments.name] = [values[rank] for rank in members]
        return result


def run(notebook: Notebook, wanted: list[str], output: Path | None, alone: bool) -> int:
    """Runs the chosen cells; returns the exit code.

    Args:
        notebook: Gets the outputs.
        wanted: The tags of the cells to run; empty for all.
        output: Where to save it.
        alone: Whether this is the only rank, which may launch others. With several, all ranks already run the cells.
    """
    outputs = Outputs()
    notebook.clear()
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module  # so that objects that cells define can be pickled
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _Tee("stdout", sys.stdout, outputs), _Tee("stderr", sys.stderr, outputs)
    try:
        with tempfile.TemporaryDirectory() as folder:
            shell = make_shell(outputs, module, folder)
            _attach(shell, alone)
            run_cell = partial(shell.run_cell, store_history=True) if alone else RankCells(shell).run
            for number, cell in enumerate(notebook.chosen(wanted), 1):
                outputs.begin(cell, number)
                result = run_cell(source(cell))
                if output is not None:
                    notebook.save(output)
                error = result.error_before_exec or result.error_in_exec
                if error is not None and MAY_FAIL not in tags(cell):
                    return _exit_code(error)
    finally:
        sys.stdout, sys.stderr = before
    return 0


def _exit_code(error: BaseException) -> int:
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    return _INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1


def _attach(shell: InteractiveShell, alone: bool) -> None:
    """Sets up magics and launches. A single rank may launch others; with several ranks, a launch is refused."""
    if alone:
        from notebook_accel import notebook

        notebook.attach(shell)
        return
    shell.register_magic_function(lambda line: None, "line", "accelerate")  # type: ignore[arg-type]  # there is nothing left to set
    notebook_accel.load_ipython_extension = lambda shell: None
    notebook_accel.notebook_launcher = notebook_accel.debug_launcher = _refuse_launch


def _refuse_launch(*_: Any, **__: Any) -> NoReturn:
    raise ConfigurationError(
        "the cells of this notebook already run on every rank: call the function itself, or launch the notebook with "
        "--num_processes 1, so that it starts its own ranks"
    )


def main() -> int:
    """Runs the process."""
    how, path, *arguments = sys.argv[1:]
    chosen = json.loads(how)
    sys.argv = [path, *arguments]
    sys.path[0] = str(Path(path).resolve().parent)
    if chosen["output"]:
        os.environ.setdefault("MPLBACKEND", _INLINE)  # on all ranks, so that cells do the same on each
    alone = int(os.environ.get("WORLD_SIZE", "1")) == 1
    first = os.environ.get("RANK", "0") == "0"
    output = Path(chosen["output"]) if chosen["output"] and first else None
    return run(Notebook(Path(path)), chosen["tags"], output, alone)


if __name__ == "__main__":
    sys.exit(main())
