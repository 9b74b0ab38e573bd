"""The process that reads jobs and devices, as Jupyter's server uses it: started by the first request, ended when idle.

Reading is not done in the server: hundreds of events a second, their garbage, and a driver's library would hold up its
event loop, on which all kernels depend.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import socket
import subprocess
from functools import cache, partial
from typing import NamedTuple

from notebook_accel.launch.system import processes

IDLE = 300.0
"""Seconds without a request after which the process is ended; the next request starts another one."""
_ENTRY = "notebook_accel.jupyter.reader.main:main"
_ENDED = (
    "The process that reads notebook-accel's jobs has ended unexpectedly. The log of the Jupyter server may say why. "
    "The next request starts it again."
)


class Answer(NamedTuple):
    """What the process has answered."""

    status: int
    """That of HTTP."""
    body: bytes
    """JSON for the browser; with a status from 400 on, a text that explains it."""


_Waiting = dict[int, "asyncio.Future[Answer]"]
"""The requests that one process has not answered yet, by number."""


class ReaderProcess:
    """The process, and the requests that it has not answered yet. For one event loop."""

    def __init__(self, idle: float = IDLE) -> None:
        self._idle = idle
        self._starting = asyncio.Lock()
        self._writer: asyncio.StreamWriter | None = None
        self._waiting: _Waiting = {}
        self._asking = 0
        self._numbers = itertools.count()
        self._closing: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    async def ask(self, call: str, **arguments: object) -> Answer:
        """Asks the process; see `reader/main.py` for the calls."""
        loop = asyncio.get_running_loop()
        if self._closing is not None:
            self._closing.cancel()
        self._asking += 1
        try:
            return await self._answer(loop, {"call": call, "arguments": arguments})
        finally:
            self._asking -= 1
            if not self._asking:
                self._closing = loop.call_later(self._idle, self.close)

    async def _answer(self, loop: asyncio.AbstractEventLoop, request: dict[str, object]) -> Answer:
        async with self._starting:
            if self._writer is None:
                await self._start(loop)
        assert self._writer is not None
        number, waiting = next(self._numbers), self._waiting
        answer: asyncio.Future[Answer] = loop.create_future()
        waiting[number] = answer
        self._writer.write(json.dumps({"id": number, **request}).encode() + b"\n")
        try:
            return await answer
        finally:
            del waiting[number]

    async def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        own, theirs = socket.socketpair()
        try:
            process = await loop.run_in_executor(None, partial(_start, theirs))
            stream, self._writer = await asyncio.open_connection(sock=own)
        except BaseException:
            own.close()
            raise
        self._waiting = {}
        self._task = loop.create_task(self._receive(stream, self._writer, self._waiting, process))

    async def _receive(
        self,
        stream: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        waiting: _Waiting,
        process: subprocess.Popen[bytes],
    ) -> None:
        """Passes answers on until the process has ended, which is what it does when the socket is closed."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while header := await stream.readline():
                fields = json.loads(header)
                body = await stream.readexactly(fields["size"])
                answer = waiting.get(fields["id"])
                if answer is not None and not answer.done():
                    answer.set_result(Answer(fields["status"], body))
        if self._writer is writer:
            self._writer = None
        writer.close()
        for answer in waiting.values():
            if not answer.done():
                answer.set_result(Answer(500, _ENDED.encode()))
        await asyncio.get_running_loop().run_in_executor(None, process.wait)

    def close(self) -> None:
        """Ends the process; requests that wait for an answer get an error."""
        if self._closing is not None:
            self._closing.cancel()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    async def ended(self) -> None:
        """Waits until the process has ended."""
        if self._task is not None:
            await self._task


@cache
def reader() -> ReaderProcess:
    """The process of this server, which has one event loop."""
    return ReaderProcess()


def _start(channel: socket.socket) -> subprocess.Popen[bytes]:
    with os.fdopen(os.dup(2), "wb") as log:  # the server's own
        return processes.start(_ENTRY, channel, log)
