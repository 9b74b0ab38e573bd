"""The functions that the kernel calls on a persistent rank. It sends them by name and never runs them itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from notebook_accel.launch.rank import disconnect
from notebook_accel.launch.wire import notebook_names, payload, pickling
from notebook_accel.notebook.cells import fingerprints
from notebook_accel.notebook.cells.cell_messages import Cell, Health, Reply, Variable
from notebook_accel.notebook.cells.fingerprints import Fingerprint

if TYPE_CHECKING:
    from notebook_accel.notebook.cells.on_rank.shell import RankShell

_MISSING = object()
_shell: RankShell
_given: dict[str, Fingerprint | None] = {}
"""Names that the notebook has sent and that no cell has bound since, each with what it held then."""
_unreported: set[str] = set()
"""Names that cells have bound and that have not been reported to the notebook yet."""


def begin() -> None:
    """Prepares the rank for its first cell."""
    global _shell
    from notebook_accel.notebook.cells.on_rank import debugger, shell
    from notebook_accel.train.ranks import process_group

    main = _main()
    _shell = shell.start(main)
    debugger.install()
    main["rank"], main["world_size"] = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    main["device"] = process_group.rejoin(0)


_disconnected = 0
"""How many times this rank's connections had been cut when it joined its process group."""


def health() -> Health:
    """Whether the process group can still be used, and the names that no reply has reported."""
    from notebook_accel.train.ranks import process_group

    bound = sorted(_unreported)
    _unreported.clear()
    return Health(process_group.operations(), disconnect.times_disconnected > _disconnected, bound)


def renew(generation: int) -> None:
    """Joins a new process group, and moves the prepared models to it."""
    global _disconnected
    from notebook_accel.train.strategies import ddp_recovery

    _disconnected = disconnect.times_disconnected
    ddp_recovery.rejoin_group(generation)


def make_equal() -> str:
    """Makes the replicas of models equal on all ranks; returns a notice for the user, empty if there is none."""
    from notebook_accel.train.strategies import ddp_recovery

    return ddp_recovery.synchronize_replicas()


def run_cell(fields: tuple[Any, ...], *variables: Variable) -> tuple[Any, ...]:
    """Adds the notebook's variables to this rank's namespace and runs a cell in it; returns a `Reply` as a tuple."""
    cell = Cell(*fields)
    main, number = _main(), int(os.environ["RANK"])
    receive(*variables)
    before = dict(main)
    try:
        _shell.run(cell, number)
    except BaseException as error:
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        raise
    finally:
        notebook_names.take_fetched()
        _note_bound({name for name, value in main.items() if before.get(name, _MISSING) is not value})
    from notebook_accel.launch.rank.display_shell import encode

    bundle = _shell.bundle
    reply = Reply(
        text=bundle.get("text/plain"),
        bundle=encode(bundle, _shell.metadata) if number in cell.shown and len(bundle) > 1 else b"",
        bound=sorted(_unreported),
        value=_shell.value if cell.wants_value else None,
    )
    _shell.value = None
    _unreported.clear()
    return tuple(reply)


def receive(*variables: Variable) -> None:
    """Stores the notebook's variables. A name that a cell has bound is replaced only if the notebook has changed it."""
    main, number = _main(), int(os.environ["RANK"])
    for variable in variables:
        name = variable.name
        if number not in variable.receivers or (name in main and name not in _given and number not in variable.changed):
            continue
        main[name] = variable.value
        # A variable without a fingerprint is not sent again, so that nothing will be compared with it.
        sent = variable.fingerprint
        own = None if sent is None else fingerprints.take(variable.value)
        _given[name] = None if sent is None or own is None else replace(own, complete=sent.complete)
        if isinstance(variable.value, type) or callable(variable.value):
            pickling.add_worker_definitions([name])


def changed(names: Sequence[str]) -> list[str]:
    """Those of the names whose values have changed on this rank since the notebook sent them, or may have."""
    return [name for name in names if name in _main() and _may_have_changed(name)]


def _may_have_changed(name: str) -> bool:
    now = fingerprints.take(_main()[name], complete=True)
    return name not in _given or fingerprints.differ(_given[name], now, complete=True) is not False


def debug(commands: str = "") -> None:
    """Opens the debugger where the last cell failed; if commands are given, runs them and closes it."""
    from notebook_accel.notebook.cells.on_rank import debugger

    debugger.post_mortem(commands)


def pull(names: Sequence[str]) -> dict[str, Any]:
    """The values of the names that exist on this rank."""
    main = _main()
    return {name: main[name] for name in names if name in main}


def _note_bound(names: set[str]) -> None:
    for name in names & _given.keys():
        del _given[name]
    _unreported.update(name for name in names if not name.startswith("_"))
    # Values sent back are instances of the notebook's own class only until the rank binds that class's name.
    payload.forget_definitions(names)


def _main() -> dict[str, Any]:
    return vars(sys.modules["__main__"])
