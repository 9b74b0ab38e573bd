"""How an exception in a rank becomes an event. Runs in the rank."""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Sequence, Set
from pathlib import Path
from types import TracebackType

from notebook_accel.errors import NotebookAccelError, PayloadError
from notebook_accel.events import Failed, Frame, Raised
from notebook_accel.launch.payload import pack_value

_PACKAGE = str(Path(__file__).parent.parent)
_MACHINERY = re.compile(r"/(cloudpickle|pickle\.py|importlib/|IPython/core/)|^<frozen importlib")
_PEER_GONE = re.compile(
    r"connection (was )?(closed|reset|refused)|broken pipe|closed by peer|socket closed|gloo.*(timed out|connect)|"
    r"nccl.*(remote|peer|socket)|connection to .* (lost|closed)",
    re.IGNORECASE | re.DOTALL,
)
_PEER_TYPES = ("DistBackendError", "DistNetworkError", "DistStoreError", "RuntimeError")


def describe(error: BaseException, stage: str, sent: Set[str] = frozenset()) -> Failed:
    """The event for an exception that ended a call, without the frames of the launcher.

    What the notebook has `sent` goes back to it by name: the exception is of the notebook's own class then.
    """
    at = time.time()
    return Failed(
        chain=_chain(error),
        at=at,
        stage=stage,
        from_peer=type(error).__name__ in _PEER_TYPES and _PEER_GONE.search(str(error)) is not None,
        exit_code=_exit_code(error) if isinstance(error, SystemExit) else None,
        exception=_pickled(error, sent),
    )


def release(error: BaseException) -> None:
    """Lets go of what the frames hold in which the exception and its causes came up.

    As long as something holds the exception, these frames hold, for instance, the iterator of a DataLoader; collected
    as part of a cycle, that waits five seconds for its workers.
    """
    seen: list[BaseException] = []
    left: list[BaseException | None] = [error]
    while left:
        current = left.pop()
        if current is not None and current not in seen:
            seen.append(current)
            traceback.clear_frames(current.__traceback__)
            left += [current.__cause__, current.__context__]


def _chain(error: BaseException) -> list[Raised]:
    links: list[Raised] = []
    seen: set[int] = set()
    current: BaseException | None = error
    link = ""
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        links.insert(0, Raised(type(current).__qualname__, _text(current), _frames(current.__traceback__), link))
        if current.__cause__ is not None:
            current, link = current.__cause__, "cause"
        elif current.__context__ is not None and not current.__suppress_context__:
            current, link = current.__context__, "context"
        else:
            break
    return links


def _text(error: BaseException) -> str:
    """The exception as a traceback ends; ours without their module, which says nothing."""
    if isinstance(error, PayloadError):  # raised by the launcher itself, with the whole story
        return str(error)
    if isinstance(error, NotebookAccelError):
        return f"{type(error).__qualname__}: {error}"
    return "".join(traceback.format_exception_only(type(error), error)).rstrip("\n") + _members(error, "  ")


def _members(error: BaseException, indent: str) -> str:
    """The exceptions of an exception group, a line each."""
    return "".join(
        f"\n{indent}{type(member).__name__}: {member}{_members(member, indent + '  ')}"
        for member in getattr(error, "exceptions", ())
        if isinstance(member, BaseException)
    )


def _frames(trace: TracebackType | None) -> list[Frame]:
    frames = [
        Frame(summary.filename, summary.lineno or 0, summary.name, summary.line or "")
        for summary in traceback.extract_tb(trace)
        if not summary.filename.startswith(_PACKAGE)
    ]
    while frames and _MACHINERY.search(frames[0].filename):
        frames.pop(0)
    return frames


def _exit_code(error: SystemExit) -> int:
    if error.code is None:
        return 0
    return error.code if isinstance(error.code, int) else 1


def _pickled(error: BaseException, sent: Set[str]) -> Sequence[memoryview]:
    """The exception, or nothing when it cannot be pickled."""
    try:
        return pack_value(error, sent)
    except Exception:
        return []
