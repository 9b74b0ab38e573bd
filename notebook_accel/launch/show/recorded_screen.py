"""Records what the ranks of a job have written and displayed below a cell, for a page that could not receive it.

What can't be shown, for example because the notebook has closed `sys.stdout`, ends no job.

A page that was reloaded no longer knows to which cell a running cell's output belongs. At the end, the panel's script
adds what is missing to the notebook. The job's log has the lines too, but neither the displays between them nor which
lines of several ranks were shown once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from notebook_accel.launch.job import output_log
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.show import front_end
from notebook_accel.launch.show.displays import Screen

MOST_CHARACTERS = 500_000
"""The most characters that are recorded: they are sent in one message, and Jupyter's server drops larger ones."""


def record(job: Job) -> RecordedScreen:
    """The front end as the screen for a job's output, which the job's first view finds recorded when the job ends."""
    rest = output_log.where_all_are(job.id)
    screen = RecordedScreen(GuardedScreen(front_end.current, job.title, rest), rest)
    job.runner.outputs = lambda: screen.outputs
    job.runner.forget_outputs = screen.forget
    return screen


class RecordedScreen:
    """Shows the output of ranks on another screen, and records it if displays can be updated there, as in a notebook.

    Args:
        screen: The other one.
        rest: Where the output is that is too much to be recorded: the end of a sentence.
    """

    def __init__(self, screen: Screen, rest: str) -> None:
        self._screen = screen
        self._rest = rest
        self._outputs: list[dict[str, Any]] = []
        self._by_id: dict[str, dict[str, Any]] = {}
        self._left = MOST_CHARACTERS
        self._left_out = 0
        self._is_recording = screen.updates_displays

    @property
    def updates_displays(self) -> bool:
        return self._screen.updates_displays

    @property
    def outputs(self) -> list[dict[str, Any]]:
        """The outputs in the notebook format. Those whose `updated` is true may have shown something else before."""
        found = [{**each, "text": "".join(each["text"])} if "text" in each else each for each in self._outputs]
        if self._left_out:
            text = f"… further output is not here: {self._rest}\n"
            found.append({"output_type": "stream", "name": "stdout", "text": text})
        return found

    def forget(self) -> None:
        """Frees the record, and records nothing further."""
        self._outputs, self._by_id = [], {}
        self._left = self._left_out = 0
        self._is_recording = False

    def write(self, stream: str, text: str) -> None:
        """Shows whole lines, each with its newline."""
        self._screen.write(stream, text)
        if not (self._is_recording and self._fits(len(text))):
            return
        last = self._outputs[-1] if self._outputs else {}
        if last.get("name") == stream:
            last["text"].append(text)
        else:
            self._outputs.append({"output_type": "stream", "name": stream, "text": [text]})

    def display(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], display_id: str, *, update: bool = False
    ) -> None:
        """Shows rich output."""
        self._screen.display(data, metadata, display_id, update=update)
        shown = self._by_id.get(display_id)
        if not self._is_recording or (update and shown is None):
            return  # the notebook itself has displayed it, or it is too large
        before = 0 if shown is None else _size(shown["data"])
        if not self._fits(_size(data) - before):
            return
        if shown is None:
            shown = self._by_id[display_id] = {"output_type": "display_data"}
            self._outputs.append(shown)
        shown.update(data=dict(data), metadata=dict(metadata), updated=update)

    def _fits(self, size: int) -> bool:
        if size > self._left:
            self._left_out += 1
            self._left = 0  # what follows would stand below something that is missing
            return False
        self._left -= size
        return True


def _size(data: Mapping[str, Any]) -> int:
    return sum(len(str(part)) for part in data.values())


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
