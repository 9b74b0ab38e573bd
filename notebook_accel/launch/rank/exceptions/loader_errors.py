"""Finds the error of a DataLoader's worker in the text of the error that torch raises for it in the rank.

    KeyError: Caught KeyError in DataLoader worker process 0.
    Original Traceback (most recent call last):
      File "...", line 4, in __getitem__
    KeyError: 'no such image 7.png'

See `ExceptionWrapper` in torch/_utils.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from notebook_accel.events import Frame, Raised
from notebook_accel.launch.wire import cell_names

_CAUGHT = re.compile(
    r"[^\n]{1,500}?: Caught ([^\s]{1,500}) in (DataLoader worker process \d{1,9})\.\n"
    r"Original Traceback \(most recent call last\):\n"
)
_FRAME = re.compile(r'  File "([^"\n]*)", line (\d{1,9}), in ([^\n]*)\n(?:    ([^\n]*)\n)?')
_MARKS = re.compile(r"\s*[~^]+\s*\n|    [^\n]*\n")
"""Lines below a frame's source: the part of it that has raised, or what follows of a source of several lines."""
_TORCH = re.compile(r"/torch/(utils/data/|_utils\.py)")


def with_workers_own(raised: Raised) -> Raised:
    """The error as the worker has raised it, with the rank's frames above it; unchanged if it is not of a worker."""
    caught = _CAUGHT.match(raised.text)
    if caught is None:
        return raised
    original = raised.text[caught.end() :]
    last = original.rfind("Traceback (most recent call last):\n")
    start = 0 if last < 0 else original.index("\n", last) + 1
    frames, text = _parse(original[start:])
    if not frames or not text:
        return raised
    above = "" if last < 0 else f"\n\nOriginal traceback of the worker:\n{original}"
    return replace(
        raised,
        type_name=caught[1],
        text=f"{text}\n(in {caught[2]}){above}",
        frames=[*_of_user(raised.frames), *_of_user(frames)],
    )


def _parse(traceback: str) -> tuple[list[Frame], str]:
    """The frames of a traceback, and the text of its exception."""
    frames, at = [], 0
    while found := _FRAME.match(traceback, at):
        frames.append(Frame(cell_names.filename_of(found[1]), int(found[2]), found[3], found[4] or ""))
        at = found.end()
        while marks := _MARKS.match(traceback, at):
            at = marks.end()
    return frames, traceback[at:].rstrip("\n")


def _of_user(frames: Sequence[Frame]) -> list[Frame]:
    return [frame for frame in frames if not _TORCH.search(frame.filename)]
