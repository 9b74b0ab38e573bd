"""Notices that an agent's node shuts down: SIGTERM then reaches all of its processes."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator

from notebook_accel.launch.wire.event_loop import EventLoop


@contextlib.contextmanager
def noticed(loop: EventLoop, on_shutdown: Callable[[], object]) -> Iterator[None]:
    """Calls a function in the event loop once this process has received SIGTERM.

    Does nothing off the main thread, where Python delivers no signal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    read_end, write_end = socket.socketpair()

    def on_terminate(*_: object) -> None:
        with contextlib.suppress(OSError):  # it is closed: the shutdown has been noticed
            write_end.shutdown(socket.SHUT_WR)

    def on_noticed() -> None:
        loop.unregister(read_end)
        on_shutdown()

    loop.register(read_end, on_noticed)
    before = signal.signal(signal.SIGTERM, on_terminate)
    try:
        yield
    finally:
        # `None` means that the previous handler was not installed by Python, so it can't be restored.
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
        loop.unregister(read_end)
        read_end.close()
        write_end.close()
