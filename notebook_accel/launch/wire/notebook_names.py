"""The names that the notebook defines, for a rank that looks one up which it was not sent.

A call brings what its functions name. `torch.load`, `pickle.loads`, and `import __main__` look up others as they run.
The rank's `__main__` then asks the notebook for them, if a cell waits for the ranks, and the notebook stays as it is.
In other cases, and for `eval` and `globals()`, which look into the dictionary of `__main__`, the error says what to do.
"""

from __future__ import annotations

import base64
import sys
import threading
from collections.abc import Mapping
from types import FunctionType
from typing import Any

from notebook_accel import events
from notebook_accel.events import NameAnswered
from notebook_accel.launch.wire.pickling import DefinitionPickler, add_worker_definitions, load
from notebook_accel.launch.wire.stack_frames import CHANNEL_THREAD_NAME

_LARGEST = 4 * 2**20
"""The most bytes of a pickled value that is sent on request."""
_of_notebook: frozenset[str] = frozenset()
"""On a rank: the names that the notebook defines, as of the last call."""
_fetched: dict[str, Any] = {}
"""On a rank: what was asked for during this call, by name, with what came along."""
_known: set[str] = set()


def defined_in(main: Mapping[str, Any]) -> frozenset[str]:
    """The names that the user has defined in a notebook; of those that begin with `_`, only functions and classes."""
    return frozenset(
        name
        for name, value in main.items()
        if not name.startswith("_") or (isinstance(value, (FunctionType, type)) and value.__module__ == "__main__")
    )


def answer(name: str, main: Mapping[str, Any] | None) -> NameAnswered:
    """What the driver answers a rank that has asked for a name.

    Args:
        name: The name.
        main: The names and values of the notebook, if it waits for the ranks.
    """
    waits = threading.current_thread() is threading.main_thread()
    if main is None or not waits or name not in main:
        return NameAnswered(name)
    pickler = DefinitionPickler()
    try:
        pickler.dump(main[name])
        pickler.dump((dict(pickler.definitions), sorted(pickler.sent)))
    except Exception as error:
        return NameAnswered(name, error=f"it can't be pickled ({type(error).__name__}: {error})")
    data = pickler.stream.getvalue()
    if len(data) > _LARGEST:
        return NameAnswered(name, error=f"it has {len(data) / 1e6:.1f} MB")
    return NameAnswered(name, base64.b64encode(data).decode())


# On a rank


def adopt(names: frozenset[str], known: set[str]) -> None:
    """Takes the names that came with a call, and has `__main__` ask for those that it lacks.

    Args:
        names: All names that the notebook defines.
        known: Gets the qualified names of the definitions that are sent on request.
    """
    global _of_notebook, _known  # the ranks of a process have one `__main__`, and so have its names
    _of_notebook, _known = names, known
    vars(sys.modules["__main__"]).setdefault("__getattr__", _look_up)


def take_fetched() -> None:
    """Removes from `__main__`, after a call, what was fetched during it: the next asks for what is current by then."""
    main = vars(sys.modules["__main__"])
    for name, value in _fetched.items():
        if main.get(name, _fetched) is value:
            del main[name]
    _fetched.clear()


def explanation(name: str) -> str:
    """Why the rank lacks a name of the notebook, and what to do; empty if the notebook does not define it."""
    if name not in _of_notebook or name in vars(sys.modules["__main__"]):
        return ""
    return (
        f"The notebook defines {name}, but nothing that was sent to the ranks names it. To send it, name it in the "
        f"function, such as by a line `{name}`."
    )


_asking = threading.Lock()


def _look_up(name: str) -> Any:
    """The `__getattr__` of a rank's `__main__`."""
    problem = f"module '__main__' has no attribute {name!r}"
    # A worker that the rank has forked has no sink, and may have been forked while another thread was asking.
    can_ask = events.has_sink() and threading.current_thread().name != CHANNEL_THREAD_NAME
    if name in _of_notebook and can_ask:
        with _asking:
            reply = events.request_name(name)
        if reply is not None and reply.data:
            return _store(name, base64.b64decode(reply.data))
        if reply is not None and reply.error:
            problem += f". The notebook defines it, but it was not sent when it was asked for: {reply.error}"
    raise AttributeError(problem, name=name, obj=sys.modules["__main__"])


def _store(name: str, data: bytes) -> Any:
    """Adds what was sent to `__main__`, where what is there already stays."""
    main = vars(sys.modules["__main__"])
    own = dict(main)
    value, (definitions, sent) = load(data, ())
    main.update({name: value, **definitions, **own})
    new = {each: main[each] for each in main.keys() - own.keys()}
    _fetched.update(new)
    _known.update(each for each in sent if each.partition(".")[0] in new)
    add_worker_definitions(each for each, found in new.items() if isinstance(found, type) or callable(found))
    return main[name]
