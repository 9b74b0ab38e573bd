"""Keeps a job running whose output can't be shown, for example because the notebook has closed `sys.stdout`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from notebook_accel.launch.show import front_end
from notebook_accel.launch.show.displays import Screen


class GuardedScreen:
    """Shows the output of ranks on another screen; if that raises, a notice says so once.

    Each later output tries again, since the stream that failed may be replaced by another one.

    Args:
        screen: The other one.
        title: The name of the job.
        rest: Where all lines are: the end of a sentence.
    """

    def __init__(self, screen: Screen, title: str, rest: str) -> None:
        self._screen = screen
        self._title = title
        self._rest = rest
        self._has_failed = False

    @property
    def updates_displays(self) -> bool:
        return self._screen.updates_displays

    def write(self, stream: str, text: str) -> None:
        """Shows whole lines, each with its newline."""
        self._show(partial(self._screen.write, stream, text), f"sys.{stream}")

    def display(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], display_id: str, *, update: bool = False
    ) -> None:
        """Shows rich output."""
        self._show(partial(self._screen.display, data, metadata, display_id, update=update), "the notebook")

    def _show(self, show: Callable[[], None], where: str) -> None:
        try:
            show()
        except BrokenPipeError:
            raise  # no process reads what this one prints, as after `| head`: it ends, as any other does
        except Exception as error:
            if not self._has_failed:
                self._has_failed = True
                front_end.current.notice(
                    f"output of {self._title} can't be shown, because {where} doesn't take it "
                    f"({type(error).__name__}: {error}). The job is not affected; {self._rest}"
                )
