"""The parent of the fork server, which ends what the server can't end: whatever outlives it.

    kernel ──▶ keeper ──▶ server ──▶ ranks ──▶ their own processes

Processes whose parent has ended are adopted by the nearest ancestor that adopts orphans. While the server lives, that
is the server, which ends them with their group. If it is killed, it is the keeper. Once the kernel has ended, the
keeper also has the server continue in case it was stopped (SIGSTOP), so that it notices. If all three were killed at
once, the next keeper ends what is left (`abandoned.py`).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys

from notebook_accel.launch.server import abandoned
from notebook_accel.launch.system import limits, own_process
from notebook_accel.launch.wire.stream import pair

_AWAITED = (signal.SIGCHLD, signal.SIGCONT)


def fork_server(kernel: int) -> None:
    """Returns in a child, which becomes the server. The process itself stays as its keeper until all has ended."""
    if sys.platform != "linux":
        return
    own_process.adopt_orphans()
    server = os.fork()
    if server == 0:
        os.setsid()
        return
    try:
        _keep(server, kernel)
    finally:
        os._exit(0)


def _keep(server: int, kernel: int) -> None:
    """Waits for children to end, and kills those that are not servers, until there are none.

    The server's successors and stores are of the server's session. Any other child is an orphan.
    """
    limits.close_from(3)
    ends = pair()
    for end in ends:
        end.setblocking(False)
    signal.set_wakeup_fd(ends[1].fileno())
    for signum in _AWAITED:
        signal.signal(signum, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
    poll = select.poll()
    poll.register(ends[0], select.POLLIN)
    end_of_kernel = own_process.watch(kernel)
    if end_of_kernel is None:
        own_process.signal_at_end_of_parent(signal.SIGCONT)  # which is the kernel
    else:
        poll.register(end_of_kernel, select.POLLIN)
    abandoned.kill()
    while own_process.reap_children():
        for pid in own_process.children():
            with contextlib.suppress(ProcessLookupError):
                if pid != server and os.getsid(pid) != server:
                    os.kill(pid, signal.SIGKILL)
        ready = [fd for fd, _ in poll.poll()]
        if end_of_kernel in ready:
            poll.unregister(end_of_kernel)
        received = ends[0].recv(4096) if ends[0].fileno() in ready else b""
        if end_of_kernel in ready or signal.SIGCONT in received:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server, signal.SIGCONT)
