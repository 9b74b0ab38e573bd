"""Runs the cells of a notebook that every rank runs, and gives `%%accelerate` cells what persistent ranks would."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from notebook_accel.notebook.cells.cell_options import CellArguments

_MAGIC = "%%accelerate"


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
        from notebook_accel.notebook.cells.cell_options import command
        from notebook_accel.notebook.cells.rank_selection import parse_ranks
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
