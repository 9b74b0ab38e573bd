"""Starts this notebook's persistent ranks when a cell first needs them, restarts them and stops them."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from notebook_accel import hardware
from notebook_accel.config import LaunchConfig
from notebook_accel.config.resolve import resolve
from notebook_accel.errors import ConfigurationError, LaunchError, RankError
from notebook_accel.launch.job.text import size as in_bytes
from notebook_accel.launch.plan import plan
from notebook_accel.launch.plan.plan import Plan
from notebook_accel.launch.show import console
from notebook_accel.notebook.cells.notices import describe_replaced, differences, only_on_ranks
from notebook_accel.notebook.cells.on_rank import kept_names
from notebook_accel.notebook.cells.on_rank.kept_names import Packed
from notebook_accel.notebook.cells.persistent import PersistentRanks
from notebook_accel.rank_spans import counted

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_session: Session | None = None


class Session:
    """The ranks of one notebook."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell
        self.ranks: PersistentRanks | None = None
        self._requested_size: int | None = None
        """The number of ranks in the last `-n` of a cell."""
        self.ran_on_ranks = False
        """Whether the current cell runs nothing in the notebook that could change its variables."""
        self.lost = ""
        """The names of variables that were lost with the ranks that were stopped last."""
        shell.events.register("post_run_cell", self._after_cell)

    @property
    def namespace(self) -> dict[str, Any]:
        """The notebook's variables."""
        found: dict[str, Any] = self.shell.user_ns
        return found

    def variables(self) -> list[str]:
        """The names of the variables that the user has defined."""
        return [name for name, value in self.namespace.items() if not self._is_hidden(name, value)]

    def ready(self, size: int | None = None, *, keep: bool = False) -> PersistentRanks:
        """Returns the ranks; starts them first if there are none, or restarts them if their number has to change.

        Args:
            size: The number of ranks; `None` for the number that there is.
            keep: Whether ranks of another number get the variables of rank 0.

        Raises:
            ConfigurationError: Ranks of that number cannot work.
            LaunchError: They could not be started.
        """
        if self.ranks is not None and size is not None and size != self.ranks.size:
            self._check_free("start another number of ranks")
            self._plan(size)  # before anything is lost
            if keep:
                return self._hand_over(self.ranks, size)
            names = self.ranks.own_names()
            lost = "the old variables are lost"
            if names:
                lost += f": {names} (--keep passes on those of rank 0)"
            console.current.notice(f"starting {counted(size)} instead of {self.ranks.size}; {lost}")
            self.stop()
        if self.ranks is None:
            wanted = size or self._requested_size
            self.ranks = self._start(wanted)
            self._requested_size = wanted  # only now, so that a number that can't be started is not tried again
        return self.ranks

    def running(self) -> PersistentRanks:
        """Returns the running ranks.

        Raises:
            ConfigurationError: There are no ranks.
        """
        if self.ranks is None:
            raise ConfigurationError("there are no ranks: the first %%accelerate cell starts them")
        return self.ranks

    def restart(self, *, keep: bool = False) -> PersistentRanks:
        """Ends the ranks, even if they are busy, and starts new ones with the current settings.

        With `keep`, the new ranks get the variables of rank 0, which must be free.
        """
        if keep:
            self._check_free("keep the variables")
            return self._hand_over(self.running(), self._requested_size)
        self.stop()
        return self.ready()

    def _hand_over(self, old: PersistentRanks, size: int | None) -> PersistentRanks:
        """Starts new ranks with the variables of rank 0, and then ends the old ones. If that fails, these are kept."""
        old.ensure_ready([0])
        packed = Packed(*old.call_on_ranks(kept_names.pack, old.variables.own(0), members=[0])[0])
        new = self._start(size)
        try:
            names = new.call_on_ranks(kept_names.unpack, *packed.parts)[0]
        except BaseException as error:
            new.stop()
            if isinstance(error, RankError):
                raise LaunchError(
                    f"the new ranks can't load the variables, so the old ranks are kept: {error}"
                ) from error
            raise
        new.variables.after(dict.fromkeys(new.members, names))
        console.current.notice(describe_replaced(new.size, old.size, packed))
        self.ranks, self._requested_size = new, size
        old.stop()
        return new

    def stop(self) -> None:
        """Ends the ranks, even if they are busy."""
        ranks, self.ranks = self.ranks, None
        if ranks is not None:
            self.lost = ranks.own_names()
            ranks.stop()

    def describe(self) -> list[str]:
        """A summary of the ranks and a line for each of them; empty if there are none."""
        ranks = self.ranks
        if ranks is None:
            return []
        doing = f"run {ranks.running.name}" if ranks.running else "are idle"
        lines = [f"{ranks.size} ranks of %%accelerate ({ranks.plan.device_text}) {doing}; cells so far: {ranks.cells}"]
        for row in ranks.describe():
            memory = f", {in_bytes(row.resident)}" if row.resident else ""
            lines.append(f"rank {row.rank}: {row.state}, process {row.pid}{memory}")
        return lines

    def settings_changed(self, changed: Collection[str]) -> str:
        """Applies changed settings; returns a notice of those that the running ranks don't have."""
        if "num_processes" in changed:
            self._requested_size = None  # the latest setting counts, whether from a cell or from %accelerate
        ranks = self.ranks
        if ranks is None:
            return ""
        found = differences(ranks.plan, self._plan(self._requested_size))
        if not found:
            return ""
        return (
            f"the {ranks.size} ranks of %%accelerate keep the settings they were started with: {'; '.join(found)}. "
            f"`%accelerate restart` applies the new settings{ranks.names_lost()}."
        )

    def _plan(self, size: int | None) -> Plan:
        """Plans new ranks; raises an error if they cannot work."""
        config = _settings(size)
        found = hardware.detect({**os.environ, **config.env})
        return plan.make(config, found, plan.engine_for(config, found))

    def _check_free(self, what: str) -> None:
        if self.ranks is not None and self.ranks.running is not None:
            raise ConfigurationError(
                f"can't {what} while {self.ranks.running.name} runs: wait for it, or end it with "
                "`%accelerate interrupt`"
            )

    def _start(self, size: int | None) -> PersistentRanks:
        return PersistentRanks(_settings(size), self.namespace, self._is_hidden)

    def _is_hidden(self, name: str, value: Any) -> bool:
        """Whether a name was defined by IPython rather than by the user."""
        hidden: Mapping[str, Any] = self.shell.user_ns_hidden
        return name.startswith("_") or (name in hidden and hidden[name] is value)

    def _after_cell(self, result: Any) -> None:
        ran_on_ranks, self.ran_on_ranks = self.ran_on_ranks, False
        if self.ranks is not None:
            source = result.info.raw_cell or ""
            on_ranks = ran_on_ranks or source.lstrip().startswith(("%%accelerate", "%%rank"))
            self.ranks.variables.kernel_ran("" if on_ranks else source)
            error = result.error_in_exec
            missing = error.name if isinstance(error, NameError) else None
            if missing and not on_ranks and self.ranks.variables.has_bound(missing):
                console.current.notice(only_on_ranks(missing))


def current(shell: InteractiveShell) -> Session:
    """The session of this notebook."""
    global _session  # a kernel belongs to one notebook
    if _session is None:
        _session = Session(shell)
    return _session


def existing() -> Session | None:
    """The session of this notebook; `None` if no cell has run on ranks."""
    return _session


def _settings(size: int | None) -> LaunchConfig:
    return resolve({"num_processes": size}, location="%%accelerate -n", in_magic=True)
