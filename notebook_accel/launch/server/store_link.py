"""The fork server's connection to the process that hosts the rendezvous stores."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from notebook_accel.launch.server import forking, store
from notebook_accel.launch.system.limits import explain_refusal
from notebook_accel.launch.system.processes import spawn
from notebook_accel.launch.wire.event_loop import EventLoop
from notebook_accel.launch.wire.stream import Channel, Message, close_all, pair


class StoreLink:
    """Starts the store process, starts another if it was killed, and passes on its messages."""

    def __init__(self, method: str, loop: EventLoop, on_messages: Callable[[list[Message]], None]) -> None:
        self.pid: int | None = None
        self.is_refused = False
        """The last attempt to start it failed."""
        self._method = method
        self._loop = loop
        self._on_messages = on_messages
        self._channel: Channel | None = None
        self._unanswered: dict[int, tuple[dict[str, Any], list[int]]] = {}
        """Requests for stores that the process has not answered, by group, with copies of their descriptors."""

    @property
    def is_up(self) -> bool:
        return self._channel is not None

    def start(self) -> None:
        """Starts the process. What is sent from now on waits in the socket until it is ready.

        Raises:
            OSError: The system refuses.
        """
        local, remote = pair()
        try:
            if self._method == "spawn":
                self.pid = spawn(f"{store.__name__}:main", [remote.fileno()], os.environ)
            else:
                self.pid = forking.fork(lambda _: store.main(remote.fileno()), without=local)
        except OSError:
            local.close()
            remote.close()
            self.is_refused = True
            raise
        self.is_refused = False
        remote.close()
        self._channel = Channel(local)
        self._loop.register(self._channel, self._on_readable)

    def open(self, request: dict[str, Any], fds: Sequence[int]) -> None:
        """Requests a store, on the listening socket in `fds` if this is node 0.

        A process that is being killed still takes requests, and answers none. Another one gets them then.

        Raises:
            OSError: The store process does not run, and cannot be started.
        """
        if not self._send(request, fds):
            self._disconnect()  # it was killed just now
            self.start()
            self._send(request, fds)
        self._unanswered[request["group"]] = request, [os.dup(fd) for fd in fds]

    def close(self, group: int) -> None:
        """Requests that the store of a group be closed, if there is one."""
        self._forget(group)
        self._send({"op": "close", "group": group})

    def release(self) -> None:
        """Closes the channel, in a fork of the server."""
        if self._channel is not None:
            self._channel.close()
        for _, fds in self._unanswered.values():
            close_all(fds)

    def _send(self, header: dict[str, Any], fds: Sequence[int] = ()) -> bool:
        """Sends a request; returns whether there is a process to receive it."""
        if self._channel is None:
            return False
        try:
            self._channel.send(header, fds=fds)
        except OSError:
            return False
        return True

    def _disconnect(self) -> None:
        if self._channel is not None:
            self._loop.unregister(self._channel)
            self._channel.close()
            self._channel = None

    def _on_readable(self) -> None:
        assert self._channel is not None
        messages = self._channel.receive(wait=False)
        if messages is None:
            self._disconnect()
            self._open_again()
            return
        for message in messages:
            self._forget(message.header["group"])
        if failed := [message for message in messages if "error" in message.header]:
            self._on_messages(failed)

    def _open_again(self) -> None:
        """Makes another process open the stores that the killed one had not opened."""
        for group in list(self._unanswered):
            request, fds = self._unanswered.pop(group)
            try:
                if request.get("again"):
                    raise OSError("it has been killed twice")
                self.open({**request, "again": True}, fds)
            except OSError as error:
                reason = f"the process for the ranks' rendezvous can't be started: {explain_refusal(error)}"
                self._on_messages([Message({"group": group, "error": reason}, [], [])])
            finally:
                close_all(fds)

    def _forget(self, group: int) -> None:
        """Releases a request that has been answered, or that is no longer needed."""
        _, fds = self._unanswered.pop(group, ({}, []))
        close_all(fds)
