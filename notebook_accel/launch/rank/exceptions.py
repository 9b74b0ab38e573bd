"""Turns an exception in a rank into an event: its chain, its frames without ours, and if possible the exception itself.

Everything is cut to a length, since user code raises exceptions with texts, chains and recursions of any size. And
whatever their classes define may fail: `__str__`, `__getattr__`, `__reduce__`, an `exceptions` that is not a group's.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import time
import traceback
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from types import TracebackType
from typing import Any

from notebook_accel.errors import NotebookAccelError, PayloadError, StreamError
from notebook_accel.events import Failed, Frame, Raised, Returned, training_step
from notebook_accel.launch.rank.out_of_memory import examine
from notebook_accel.launch.system.limits import explain_refusal
from notebook_accel.launch.wire import cell_names, notebook_names, stack_frames
from notebook_accel.launch.wire.payload import pack_value
from notebook_accel.launch.wire.plain_text import both_ends, ends

_MACHINERY = re.compile(r"/(cloudpickle|pickle\.py|importlib/|IPython/core/)|^<frozen importlib")
_PEER_LOST = re.compile(
    r"connection (was )?(closed|reset|refused)|broken pipe|closed by peer|socket closed|"
    r"gloo.{,300}(timed out|connect)|nccl.{,300}(remote|peer|socket)|connection to .{,300} (lost|closed)",
    re.IGNORECASE | re.DOTALL,
)
"""How gloo, nccl and the store say that another rank has gone. Bounded, since a search of `.*` takes quadratic time."""
_PEER_TYPES = ("DistBackendError", "DistNetworkError", "DistStoreError", "RuntimeError")
"""The exceptions in which they do."""

_MOST_TEXT = 2**16
"""The most characters of the text of one exception."""
_MOST_LINE = 500
"""The most characters of a line of source, and of any other text without a line break."""
_MOST_FRAMES = 2000
"""The most frames of one exception: more than the usual recursion limit, so that a runaway one is counted exactly."""
_MOST_PICKLED = 2**20
"""The most bytes of the pickled exception."""
_MOST_LINKS = 12
"""The most exceptions of a chain."""
_MOST_MEMBERS = 100
"""The most exceptions of an exception group."""
_CAUGHT = re.compile(
    r"[^\n]{1,500}?: Caught ([^\s]{1,500}) in (DataLoader worker process \d{1,9})\.\n"
    r"Original Traceback \(most recent call last\):\n"
)
_FRAME = re.compile(r'  File "([^"\n]*)", line (\d{1,9}), in ([^\n]*)\n(?:    ([^\n]*)\n)?')
_MARKS = re.compile(r"\s*[~^]+\s*\n|    [^\n]*\n")
"""Lines below a frame's source: the part of it that has raised, or what follows of a source of several lines."""
_TORCH = re.compile(r"/torch/(utils/data/|_utils\.py)")
_REFUSED = re.compile(r"RuntimeError: (Resource temporarily unavailable|can't start new thread)")
"""What C++'s and Python's threads raise."""
_MISSING = re.compile(
    r"NameError: name '(\w+)' is not defined|AttributeError: module '__main__' has no attribute '(\w+)'|"
    r"(?:_pickle\.PicklingError|AttributeError): Can't get attribute '(\w+)' on <module '__main__'|"
    r"ImportError: cannot import name '(\w+)' from '__main__'"
)
_MISSING_KEY = re.compile(r"KeyError: '(\w+)'")
_NAMESPACE = re.compile(r"\b(globals|vars)\(|\b__dict__\b")
"""What a line has that looks up a name in the dictionary of `__main__`."""


def describe(error: BaseException, stage: str, sent: Set[str] = frozenset()) -> Failed:
    """The event for an exception that ended a call, without the frames of the launcher.

    Definitions that the notebook has `sent` are pickled by name, so that the exception is of the notebook's own class.
    """
    at = time.time()
    text = _text(error)
    return Failed(
        chain=_chain(error),
        at=at,
        stage=stage,
        from_peer=type(error).__name__ in _PEER_TYPES and _PEER_LOST.search(both_ends(text, _MOST_TEXT)) is not None,
        exit_code=_exit_code(error) if _is_a(error, SystemExit) else None,
        step=training_step(),
        out_of_memory=examine(error, text),
        exception=_pickled(error, sent) if len(text) <= _MOST_TEXT else (),
    )


def too_long(answer: Returned | Failed, error: StreamError) -> Failed:
    """The event that replaces a result that is too long to be sent."""
    if isinstance(answer, Returned):
        text = f"the returned value consists of too many parts to be sent: {error}. Return one array or tensor instead"
        return Failed([Raised("PayloadError", text, ())], time.time(), "returning")
    raised = answer.chain[-1]
    text = f"{both_ends(raised.text, _MOST_LINE)}\n(The rest of this error is too long to be sent: {error}.)"
    return replace(answer, chain=[replace(raised, text=text, frames=raised.frames[-1:])], exception=())


def release(error: BaseException) -> None:
    """Clears the local variables of the frames that the exception and its causes passed through.

    While the exception is held, so is, for instance, the iterator of a DataLoader. Collected as part of a cycle, it
    would wait five seconds for its workers.
    """
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        current = left.pop()
        if current is not None and id(current) not in seen:
            seen.add(id(current))
            traceback.clear_frames(_own(current, "__traceback__"))
            left += [_own(current, "__cause__"), _own(current, "__context__")]


def _chain(error: BaseException) -> list[Raised]:
    """The exceptions that led to this one, and this one last; of very many, the first and the last."""
    links: list[tuple[BaseException, str]] = []
    seen: set[int] = set()
    current: BaseException | None = error
    link = ""
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        links.append((current, link))
        if _own(current, "__cause__") is not None:
            current, link = _own(current, "__cause__"), "cause"
        elif not _own(current, "__suppress_context__"):
            current, link = _own(current, "__context__"), "context"
        else:
            break
    first, last = map(_to_events, ends(links[::-1], _MOST_LINKS))
    if last:
        first.append(Raised("", f"[{len(links) - _MOST_LINKS:,} more exceptions left out]", ()))
    return first + last


def _to_events(links: Sequence[tuple[BaseException, str]]) -> list[Raised]:
    return [_to_event(error, link) for error, link in links]


def _to_event(error: BaseException, link: str) -> Raised:
    raised = Raised(
        both_ends(type(error).__qualname__, _MOST_LINE),
        both_ends(_text(error), _MOST_TEXT),
        _frames(_own(error, "__traceback__")),
        link,
    )
    for explain in _EXPLANATIONS:
        raised = explain(raised)
    return raised


def _is_a(error: object, kind: type[BaseException]) -> bool:
    """Whether it is an instance. `isinstance` would also read `__class__`, which the exception's class may forbid."""
    return issubclass(type(error), kind)


def _own(error: BaseException, name: str) -> Any:
    """An attribute that Python itself has set, whatever the exception's class makes of its name."""
    return getattr(BaseException, name).__get__(error)


def _set_own(error: BaseException, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        getattr(BaseException, name).__set__(error, value)


def _text(error: BaseException) -> str:
    """The last lines of a traceback; notebook-accel's own exceptions without their module, which says nothing."""
    if _is_a(error, PayloadError):  # its text is complete
        return str(error)
    if _is_a(error, NotebookAccelError):
        return f"{type(error).__qualname__}: {error}"
    return _without_chain(error) + _members(error)


def _without_chain(error: BaseException) -> str:
    """The type, message and notes of an exception. The chain is hidden from Python, which would format all of it."""
    chain = {name: _own(error, name) for name in ("__cause__", "__context__", "__suppress_context__")}
    try:
        if _exceptions(error):
            return _encodable(f"{type(error).__qualname__}: {error}")
        _set_own(error, {"__cause__": None, "__context__": None})
        return _encodable("".join(traceback.format_exception_only(type(error), error)).rstrip("\n"))
    except BaseException:
        return f"{type(error).__qualname__}: {_message(error)}"
    finally:
        _set_own(error, chain)


def _message(error: BaseException) -> str:
    """The message of an exception that Python can't format, which says the same of a `__str__` that fails."""
    try:
        return _encodable(str(error))
    except BaseException:
        return "<exception str() failed>"


def _members(group: BaseException) -> str:
    """The exceptions of an exception group, and of the groups in it, a line each."""
    lines: list[str] = []
    left = [(error, "  ") for error in reversed(_exceptions(group))]
    while left and len(lines) < _MOST_MEMBERS:
        error, indent = left.pop()
        if _is_a(error, BaseException):
            text = both_ends(_without_chain(error).replace("\n", " "), _MOST_LINE)
            lines.append(f"\n{indent}{text}")
            left += [(member, f"{indent}  ") for member in reversed(_exceptions(error))]
    return "".join(lines) + (f"\n  [{len(left):,} more left out]" if left else "")


def _exceptions(error: BaseException) -> tuple[Any, ...]:
    """The exceptions of a group; empty for any other exception, also for one that has an attribute of that name."""
    try:
        found = getattr(error, "exceptions", ())
    except BaseException:
        return ()
    return found if isinstance(found, tuple) else ()


def _encodable(text: str) -> str:
    """The text without surrogates, which could not be sent to a browser."""
    return text.encode(errors="backslashreplace").decode()


def _frames(trace: TracebackType | None) -> list[Frame]:
    """The frames outside of notebook-accel; of very many, the first and the last."""
    found = [
        each for each in traceback.walk_tb(trace) if not each[0].f_code.co_filename.startswith(stack_frames.PACKAGE)
    ]
    first, last = (traceback.StackSummary.extract(iter(some)) for some in ends(found, _MOST_FRAMES))
    frames = [_frame(summary) for summary in first]
    while frames and _MACHINERY.search(frames[0].filename):
        frames.pop(0)
    left_out = [Frame("", 0, f"{len(found) - _MOST_FRAMES:,} more frames left out")] if last else []
    return [*frames, *left_out, *map(_frame, last)]


def _frame(summary: traceback.FrameSummary) -> Frame:
    name, line = both_ends(summary.name, _MOST_LINE), both_ends(summary.line or "", _MOST_LINE)
    return Frame(both_ends(summary.filename, _MOST_LINE), summary.lineno or 0, name, line)


def _exit_code(error: BaseException) -> int:
    code = vars(SystemExit)["code"].__get__(error)
    if code is None:
        return 0
    return code if isinstance(code, int) else 1


def _pickled(error: BaseException, sent: Set[str]) -> Sequence[memoryview]:
    """The exception, pickled; empty if that fails, or if it is too large to be sent."""
    try:
        found = pack_value(error, sent)
    except BaseException:
        return []
    return found if sum(part.nbytes for part in found) <= _MOST_PICKLED else []


def with_workers_own(raised: Raised) -> Raised:
    """The error as a DataLoader's worker has raised it, below the rank's frames; unchanged if it is not of a worker.

    Torch raises it with a text that contains the worker's traceback; see `ExceptionWrapper` in torch/_utils.py:

        KeyError: Caught KeyError in DataLoader worker process 0.
        Original Traceback (most recent call last):
          File "...", line 4, in __getitem__
        KeyError: 'no such image 7.png'
    """
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


def with_limit(raised: Raised) -> Raised:
    """The error with the limit that is reached, and what to do; unchanged if it has another cause."""
    if _REFUSED.fullmatch(raised.text) is None:
        return raised
    return replace(raised, text=explain_refusal(OSError(errno.EAGAIN, raised.text)))


def with_own_arguments(raised: Raised) -> Raised:
    """The exit with where the arguments came from, and what to write; unchanged if it has another cause."""
    is_parser = any(frame.filename.endswith(f"{os.sep}argparse.py") for frame in raised.frames)
    if raised.text != "SystemExit: 2" or not is_parser or "kernel" not in os.path.basename(sys.argv[0]):
        return raised
    return replace(
        raised,
        text=f"{raised.text}\nWithout an argument, parse_args() reads those of the notebook's kernel: "
        f"{' '.join(sys.argv[1:])}. Write parse_args([]) to use the defaults, or give it the arguments that it should "
        "parse, such as parse_args(['--epochs', '3']).",
    )


def with_notebook(raised: Raised) -> Raised:
    """The error with a sentence on what to do; unchanged if it is not about a name of the notebook."""
    found = _MISSING.match(raised.text)
    if found is None and raised.frames and _NAMESPACE.search(raised.frames[-1].line):
        found = _MISSING_KEY.match(raised.text)
    name = "" if found is None else next(filter(None, found.groups()))
    explanation = notebook_names.explanation(name)
    return replace(raised, text=f"{raised.text}\n{explanation}") if explanation else raised


_EXPLANATIONS = (with_workers_own, with_limit, with_own_arguments, with_notebook)
"""Each replaces what it knows a better text for."""
