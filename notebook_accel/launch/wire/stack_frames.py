"""Frames of a stack: which are the user's, which threads and collectives they are of, and how they are formatted."""

from __future__ import annotations

import functools
import itertools
import linecache
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from notebook_accel.events import Frame, ThreadStack
from notebook_accel.launch.system import installed
from notebook_accel.launch.wire import cell_names

PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_CONTEXT = 2
_SHOWN_FRAMES = 20
"""How many frames at each end of a long stack are shown."""
_DUMPED = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)$', re.MULTILINE)
MAIN_LOOP = "serve"
"""The function at the bottom of a rank's main thread, which runs the user's calls."""
CHANNEL_THREAD = "_attend"
"""The function at the bottom of the thread that owns a rank's channel, which users never want to see."""
CHANNEL_THREAD_NAME = "notebook-accel"
"""The name of that thread itself."""
_Function = TypeVar("_Function", bound=Callable[..., object])
_SHIMS = frozenset({"distributed/c10d_logger.py", "_ops.py", "utils/_contextlib.py"})
"""Files of wrappers around collectives."""
_FILES = {
    "distributed/distributed_c10d.py": "",
    "distributed/rendezvous.py": "",
    "distributed/_functional_collectives.py": "functional collective",
    "distributed/utils.py": "",
    "nn/parallel/distributed.py": "DistributedDataParallel",
}
"""Files whose functions communicate with other ranks, and the name to show; empty for the function's own name."""


def cache_cell_sources(sources: Mapping[str, str]) -> None:
    """Adds the text of cells, by file name, to `linecache`, for tracebacks and `inspect` in this process."""
    for filename, text in sources.items():
        # A cell is not a file: without a time stamp, `linecache` never checks the entry against the disk.
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)


def is_ours(filename: str) -> bool:
    """Whether a file belongs to this package, or is the `python -c` text that starts its processes."""
    return filename.startswith(PACKAGE) or filename == "<string>"


def without_ours(stack: Iterable[Frame]) -> list[Frame]:
    """A stack, outermost frame first, without this package's frames and those with which a thread or a cell begins."""
    found = [frame for frame in stack if not is_ours(frame.filename)]
    begun = list(itertools.dropwhile(lambda frame: begins(frame.filename), found))
    return begun or found


def begins(filename: str) -> bool:
    """Whether a file is one whose functions begin a thread, or a cell of IPython's."""
    return filename == threading.__file__ or "/IPython/core/" in filename


def innermost_user_frame(frames: Iterable[Frame]) -> Frame | None:
    """The innermost frame of the user's own code, otherwise the innermost of all. `frames` are outermost first."""
    innermost = None
    for frame in reversed(list(frames)):
        if is_user_file(frame.filename):
            return frame
        innermost = innermost or frame
    return innermost


@functools.lru_cache(maxsize=1024)
def is_user_file(filename: str) -> bool:
    """Whether a file is the user's own: not Python's, not an installed package's, and not this package's."""
    return not (filename.startswith("<frozen ") or installed.is_installed(filename) or is_ours(filename))


def where(frame: Frame) -> str:
    """`In[5] line 12`; for a file, its path, relative to the working directory if it is below that."""
    place = cell_names.name_of(frame.filename)
    here = os.path.join(os.getcwd(), "")
    return f"{place.removeprefix(here)} line {frame.lineno}"


def source(frame: Frame) -> str:
    """The source line of a frame."""
    return frame.line or linecache.getline(frame.filename, frame.lineno).strip()


def with_sources(stack: Iterable[Frame]) -> list[Frame]:
    """The frames with display names, such as `In[3]`, and source lines, for processes that have neither."""
    return [replace(frame, filename=cell_names.name_of(frame.filename), line=source(frame)) for frame in stack]


def parse_dump(dump: str) -> list[ThreadStack]:
    """The threads in a dump of faulthandler's, without those in which only this package runs."""
    threads = [thread for thread in re.split(r"\n\n|^(?=Thread |Current thread )", dump, flags=re.MULTILINE) if thread]
    found = []
    for thread in threads:
        stack = [Frame(m["file"], int(m["line"]), m["name"]) for m in reversed(list(_DUMPED.finditer(thread)))]
        frames = without_ours(stack)
        ours = {frame.name for frame in stack if is_ours(frame.filename)}
        main = MAIN_LOOP in ours
        if main or (frames and CHANNEL_THREAD not in ours):
            found.append(ThreadStack(thread.split(" (")[0].lower(), frames, main=main))
    return found


def format_frames(frames: Sequence[Frame]) -> str:
    """Frames as in a notebook's own traceback: for a cell with the lines around, for a file with the line alone."""
    lines: list[str] = []
    for frame, times in _runs(frames):
        if not frame.filename:  # it stands for those that were left out
            lines.append(f"  [{frame.name}]")
            continue
        place = cell_names.name_of(frame.filename)
        is_cell = place != frame.filename
        file = place if is_cell else f'File "{frame.filename}"'
        lines.append(f"{file}, line {frame.lineno}, in {frame.name}")
        if is_cell:
            lines += _surroundings(frame)
        else:
            text = source(frame)
            lines += [f"    {text}"] if text else []
        if times > 1:
            lines.append(f"  (repeated {times - 1} more times)")
    return "\n".join(lines)


def outline(stack: Sequence[Frame]) -> str:
    """One line for each frame: `In[5] line 12 in train: loss.backward()`."""
    lines = []
    for frame, times in _runs(stack):
        text = source(frame)
        again = f" (repeated {times - 1} more times)" if times > 1 else ""
        lines.append(f"{installed.short(where(frame))} in {frame.name}{again}{': ' if text else ''}{text}")
    return "\n".join(lines)


def _runs(frames: Sequence[Frame]) -> list[tuple[Frame, int]]:
    """Each frame with the number of times that it repeats in a row; if there are very many, the first and the last."""
    runs = [(frame, len(list(same))) for frame, same in itertools.groupby(frames)]
    return runs if len(runs) <= 2 * _SHOWN_FRAMES else runs[:_SHOWN_FRAMES] + runs[-_SHOWN_FRAMES:]


def _surroundings(frame: Frame) -> list[str]:
    source = linecache.getlines(frame.filename)
    if not source:
        return [f"    {frame.line}"] if frame.line else []
    first = max(1, frame.lineno - _CONTEXT)
    last = min(len(source), frame.lineno + _CONTEXT)
    return [
        f"{'-->' if number == frame.lineno else '   '} {number:>4} {source[number - 1].rstrip()}".rstrip()
        for number in range(first, last + 1)
    ]


def named_in_dumps(name: str) -> Callable[[_Function], _Function]:
    """Gives a function this name in all stacks, those that faulthandler dumps included.

    It tells the threads that a rank starts itself from the user's. For each frame, faulthandler writes only the file,
    line and function name, so the dump of a stuck or crashed process contains nothing else. The name is therefore set
    on the code object, independent of the function's name in the source.
    """

    def mark(function: _Function) -> _Function:
        code = function.__code__
        function.__code__ = code.replace(co_name=name)
        return function

    return mark


def outermost_collective(stack: Iterable[tuple[str, str]]) -> tuple[str, int]:
    """Finds the outermost of torch's functions in which a stack communicates with other ranks.

    It goes by the names of torch's files, so it needs no torch, and also works for a stack that faulthandler has
    written.

    Args:
        stack: The file and the function of each frame, the innermost first.

    Returns:
        The name of the collective and the index of the function's frame; an empty name if the stack is in none.
    """
    found, at = "", -1
    for index, (filename, function) in enumerate(stack):
        file = filename.rpartition("/torch/")[2]
        label = _FILES.get(file)
        if label is not None:
            found, at = label or function.lstrip("_"), index
        elif file not in _SHIMS:
            break
    return found, at


def is_backward(filename: str, function: str) -> bool:
    """Whether a frame called torch's C code that runs a backward pass, with its collectives."""
    return function == "_engine_run_backward" and filename.endswith("/torch/autograd/graph.py")
