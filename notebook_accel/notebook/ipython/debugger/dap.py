"""Messages of the Debug Adapter Protocol, and the numbers of threads, frames and variables in them.

Each rank's debugger numbers its own from 1. For the front end, `BASE` times the number of the rank's session is added,
which also makes them different from those of the kernel. JavaScript represents them exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Message = Mapping[str, Any]

BASE = 2**32
_FIELDS = frozenset({"threadId", "frameId", "srcFrameId", "variablesReference"})
_LISTS = frozenset({"stackFrames", "threads"})
"""The lists whose items have a number in their field `id`."""


def session_of(arguments: Mapping[str, Any]) -> int:
    """The number of the session that a request's arguments belong to; 0 if that is the kernel."""
    numbers = (arguments[field] for field in _FIELDS if isinstance(arguments.get(field), int))
    return max((number // BASE for number in numbers), default=0)


def to_rank(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A request's arguments with the rank's own numbers."""
    return {field: value % BASE if field in _FIELDS else value for field, value in arguments.items()}


def from_rank(value: Any, session: int) -> Any:
    """The body of a response or an event with the numbers for the front end."""
    if isinstance(value, list):
        return [from_rank(item, session) for item in value]
    if not isinstance(value, dict):
        return value
    found = {field: from_rank(item, session) for field, item in value.items()}
    for field in _FIELDS & found.keys():
        if found[field]:  # 0 stands for none
            found[field] += session * BASE
    for field in _LISTS & found.keys():
        found[field] = [{**item, "id": item["id"] + session * BASE} for item in found[field]]
    return found


def response(request: Message, body: Mapping[str, Any]) -> dict[str, Any]:
    """The response to a request."""
    return {
        "type": "response",
        "seq": request["seq"],
        "request_seq": request["seq"],
        "command": request["command"],
        "success": True,
        "body": dict(body),
    }


def failure(request: Message, text: str) -> dict[str, Any]:
    """The response to a request that can't be met."""
    return {**response(request, {}), "success": False, "message": text}


def event(name: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """An event."""
    return {"type": "event", "seq": 0, "event": name, "body": dict(body)}
