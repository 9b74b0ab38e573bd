"""Stands before the kernel's debugger: takes the requests that are for ranks, and leaves it all others.

Jupyter's front ends send requests of the Debug Adapter Protocol to the kernel on its control channel, with a few that
Jupyter adds (https://jupyter-client.readthedocs.io/en/stable/messaging.html#debug-request). JupyterLab knows a single
thread, the one that stopped last. So the stack of the rank that the user looks at is followed by those of the other
ranks that are held: to choose a rank is to choose one of its frames.
"""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from notebook_accel.launch.driver import debug_relay
from notebook_accel.launch.wire import stack_frames
from notebook_accel.notebook.ipython.debugger import dap
from notebook_accel.notebook.ipython.debugger.dap import Message
from notebook_accel.notebook.ipython.debugger.rank_debugger import RankDebugger, RankLost, Session

_STEPS = frozenset({"next", "stepIn", "stepOut"})
_OF_A_THREAD = _STEPS | {"continue", "stackTrace"}
"""Requests that go to the rank that the user looks at while one is held, whatever thread they name."""
_SETTINGS = frozenset({"setBreakpoints", "setFunctionBreakpoints", "setExceptionBreakpoints"})
_FORMATTED = "get_ipython().display_formatter.format({})"
Handle = Callable[[dict[str, Any]], Awaitable[Message]]


def install(kernel: Any) -> None:
    """Lets the debugger of a kernel debug ranks, too; does nothing if the kernel has none."""
    debugger = getattr(kernel, "debugger", None)
    if debugger is not None and not isinstance(getattr(debugger.process_request, "__self__", None), KernelDebugger):
        debugger.process_request = KernelDebugger(debugger).process_request


class KernelDebugger:
    """Handles the debugging requests of a kernel.

    Args:
        debugger: The kernel's own debugger.
    """

    def __init__(self, debugger: Any) -> None:
        self._own: Handle = debugger.process_request
        self._ranks = RankDebugger(debugger.event_callback)

    async def process_request(self, message: dict[str, Any]) -> Message:
        """Handles a request; returns the response."""
        self._ranks.attach_to(asyncio.get_running_loop())
        try:
            return await self._handle_for_ranks(message) or await self._handle_here(message)
        except RankLost as error:
            return dap.failure(message, str(error))

    async def _handle_here(self, message: dict[str, Any]) -> Message:
        """Lets the kernel's debugger handle a request, and adds what concerns ranks."""
        command, arguments = message["command"], message.get("arguments") or {}
        if command == "disconnect":
            debug_relay.set_client(None)
            self._ranks.detach()
        reply = await self._own(message)
        if command == "attach" and reply.get("success"):
            debug_relay.set_client(self._ranks)
        elif command in _SETTINGS:
            self._ranks.configure(command, arguments.get("source", {}).get("path", ""), arguments)
        elif command == "threads":
            self._ranks.lists_threads = True
            reply["body"]["threads"] += [
                {"id": each.number * dap.BASE + (each.thread or 1), "name": f"rank {each.rank}"}
                for each in self._ranks.running
            ]
        elif command == "debugInfo":
            held = self._ranks.held()
            reply["body"]["stoppedThreads"] += [each.number * dap.BASE + (each.thread or 1) for each in held[:1]]
        return reply

    async def _handle_for_ranks(self, message: Message) -> Message | None:
        """Handles a request that is for a rank; returns `None` for all others."""
        command, arguments = message["command"], message.get("arguments") or {}
        if command == "pause" and self._ranks.running:
            for each in self._ranks.running:
                self._ranks.send(each, "pause", {"threadId": "*"})
            return dap.response(message, {})
        number, held = dap.session_of(arguments), self._ranks.held()
        session = self._ranks.session(number)
        if command in _OF_A_THREAD and held and not (self._ranks.lists_threads and session):
            session = held[0]
        if session is None:
            return dap.failure(message, "this rank is no longer held") if number else None
        if command == "stackTrace":
            return await self._stack(message, session)
        if command == "continue":
            self._ranks.go_on()
            return dap.response(message, {"allThreadsContinued": True})
        if command in _STEPS:
            step = {**arguments, "threadId": session.thread}
            self._ranks.step(session)
            return await self._ask(message, session, command, step)
        if command == "scopes":
            self._ranks.look_at(session)
        if command == "richInspectVariables":
            return await self._formatted(message, session)
        if command == "copyToGlobals":
            return await self._copied(message, session)
        return await self._ask(message, session, command, dap.to_rank(arguments))

    async def _ask(self, message: Message, session: Session, command: str, arguments: Message) -> Message:
        reply = await self._ranks.ask(session, command, arguments)
        body = dap.from_rank(reply.get("body") or {}, session.number)
        return {**reply, "request_seq": message["seq"], "command": message["command"], "body": body}

    async def _stack(self, message: Message, session: Session) -> Message:
        """The stack of a rank; then those of the others that are held, unless the front end asks for each."""
        others = [] if self._ranks.lists_threads else [each for each in self._ranks.held() if each is not session]
        frames: list[dict[str, Any]] = []
        for each in (session, *others):
            reply = await self._ask(message, each, "stackTrace", {"threadId": each.thread or 1})
            for frame in reply["body"].get("stackFrames", ()):
                path = (frame.get("source") or {}).get("path") or ""
                if not (stack_frames.is_ours(path) or stack_frames.begins(path)):
                    frames.append({**frame, "name": f"rank {each.rank}: {frame['name']}"})
        return dap.response(message, {"stackFrames": frames, "totalFrames": len(frames)})

    async def _formatted(self, message: Message, session: Session) -> Message:
        """A variable as the rank displays it; as text if the rank has no display formatter."""
        arguments = dap.to_rank(message["arguments"])
        name, frame = arguments["variableName"], arguments.get("frameId")
        data, metadata = {}, {}
        if str.isidentifier(name):
            question = {"expression": _FORMATTED.format(name), "frameId": frame, "context": "clipboard"}
            reply = await self._ranks.ask(session, "evaluate", question)
            if reply["success"]:
                data, metadata = ast.literal_eval(reply["body"]["result"])
            else:
                reply = await self._ranks.ask(session, "evaluate", {**question, "expression": f"repr({name})"})
                data = {"text/plain": ast.literal_eval(reply["body"]["result"])} if reply["success"] else {}
        kept = {mime: metadata[mime] for mime in metadata if mime in data}
        return dap.response(message, {"data": data, "metadata": kept})

    async def _copied(self, message: Message, session: Session) -> Message:
        """Copies a variable of a frame to the global variables of its rank."""
        arguments = dap.to_rank(message["arguments"])
        source, target = arguments["srcVariableName"], arguments["dstVariableName"]
        if not (str.isidentifier(source) and str.isidentifier(target)):
            return dap.failure(message, "the names of both variables must be identifiers")
        change = {"expression": f"globals()[{target!r}]", "value": source, "frameId": arguments["srcFrameId"]}
        return await self._ask(message, session, "setExpression", change)
