"""Sends the notebook's variables to a group of ranks: those that a cell reads, or those of `%accelerate push`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from notebook_accel.launch.driver import changed_modules
from notebook_accel.launch.show import front_end
from notebook_accel.launch.wire.mirrored import notebook_state
from notebook_accel.launch.wire.payload import Payload
from notebook_accel.notebook.cells.cell_messages import Variable
from notebook_accel.notebook.cells.on_rank import worker
from notebook_accel.notebook.cells.variable_notices import describe_kept, describe_unclear
from notebook_accel.notebook.cells.variables import Variables


class VariableTransfer:
    """Keeps the ranks' copies of the notebook's variables up to date, except where a rank has changed its own.

    Args:
        variables: The record of what the ranks have.
        members: All ranks of the group.
        call: Runs a pickled call on ranks; takes also their numbers and the call's name, and returns their values.
        state: The working directory and paths that the ranks have adopted.
    """

    def __init__(
        self,
        variables: Variables,
        members: Sequence[int],
        call: Callable[[Payload, Sequence[int], str], list[Any]],
        state: notebook_state.State,
    ) -> None:
        self._variables = variables
        self._members = members
        self._call = call
        self._state = state

    def pack(
        self, call: tuple[Any, ...], names: Mapping[str, str], members: Collection[int]
    ) -> tuple[Payload, list[Variable]]:
        """Pickles a call with the variables that it reads, where the ranks lack them or have an older content.

        A variable that a rank has changed itself is not replaced, and a notice says so.

        Raises:
            PayloadError: One of the variables can't be sent.
            KeyboardInterrupt: It was interrupted.
        """
        state = self._changed_state()
        packed, sent = self._variables.pack(call, names, members, state)
        try:
            changed_by = self._changed_by_ranks(sent)
        except BaseException:
            packed.close()
            raise
        if changed_by:
            packed.close()
            front_end.current.notice(describe_kept(changed_by))
            kept = self._variables.keep(changed_by, members)
            packed, sent = self._variables.pack(call, names, members, state, kept=kept)
        changed = changed_modules.notice(packed, "a cell on the ranks")
        if changed:
            front_end.current.notice(changed)
        assigned = self._variables.newly_assigned()
        if assigned:
            front_end.current.notice(describe_kept(assigned, "assigned"))
        unclear = self._variables.newly_unclear()
        if unclear:
            front_end.current.notice(describe_unclear(unclear))
        return packed, sent

    def push(self, names: Mapping[str, str]) -> None:
        """Sends variables of the notebook to all ranks, replacing the ranks' values.

        Raises:
            PayloadError: One of them can't be sent.
        """
        packed, sent = self._variables.pack((worker.receive, (), {}), names, self._members, resend=True)
        self._call(packed, self._members, "push")
        for rank in self._members:
            self._variables.mark_sent(sent, rank)

    def _changed_by_ranks(self, sent: Sequence[Variable]) -> dict[str, list[int]]:
        """The variables to send again that ranks have changed themselves, each with these ranks."""
        names = [variable.name for variable in sent if variable.edited]
        if not names:
            return {}
        holders = sorted(set[int]().union(*(variable.edited for variable in sent)))
        packed, _ = self._variables.pack((worker.changed, (names,), {}), {}, ())
        found = self._call(packed, holders, "changed")
        changed_by: dict[str, list[int]] = {}
        for rank, changed in zip(holders, found, strict=True):
            for name in changed:
                changed_by.setdefault(name, []).append(rank)
        return changed_by

    def _changed_state(self) -> notebook_state.State | None:
        """The notebook's working directory, `sys.path` and `sys.argv`; `None` if unchanged since the last cell."""
        now, before = notebook_state.capture_paths(), self._state
        if (now.cwd, now.path, now.argv) == (before.cwd, before.path, before.argv):
            return None
        self._state = now
        return now
