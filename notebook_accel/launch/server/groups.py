"""One group of ranks, as the server that started them holds it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from notebook_accel.launch.wire.stream import Channel, Message


@dataclass
class Group:
    """The ranks of one launch on this machine."""

    number: int
    channel: Channel
    """What the kernel asks of the group, and hears of it."""
    pids: dict[int, int] = field(default_factory=dict)
    """Process of each rank that has not been reaped."""
    pending: list[Message] = field(default_factory=list)
    """Ranks to start once the machines have met."""
    has_rendezvous: bool = False
    exits_expected: bool = False
    """All ranks have said their last word, and end by themselves within moments."""
    failed: bool = False
    """Not all of its ranks could be started."""
    closed: bool = False

    @property
    def is_over(self) -> bool:
        """Whether nothing is left of it."""
        return self.closed and not self.pids

    def signal(self, rank: int, signum: int) -> None:
        """Sends a signal to a rank; a kill also ends what shares its process group."""
        for message in [each for each in self.pending if each.header["rank"] == rank]:
            self.pending.remove(message)  # it has not begun, and will not
            close_all(message.fds)
            self.report_end(rank, -signum, None)
        if rank not in self.pids:
            return
        if signum == signal.SIGKILL:
            with contextlib.suppress(ProcessLookupError):  # it has not become a group of its own yet
                os.killpg(self.pids[rank], signum)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pids[rank], signum)

    def kill(self) -> None:
        """Ends every rank, and reaps it."""
        for rank in self.pids:
            self.signal(rank, signal.SIGKILL)
        for pid in self.pids.values():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        self.pids.clear()

    def report_end(self, rank: int, status: int, peak: int | None) -> None:
        """Tells the kernel that a rank has ended: its exit status, and the most memory it held, in bytes."""
        with contextlib.suppress(OSError):  # the kernel has just closed it
            self.channel.send({"rank": rank, "status": status, "at": time.time(), "peak": peak})

    def fail(self, error: str) -> None:
        """Tells the kernel why the ranks can't be started. It closes the group then; no more of them are."""
        self.failed = True
        with contextlib.suppress(OSError):
            self.channel.send({"error": error})

    def release(self) -> None:
        """Closes what this process holds of it."""
        self.channel.close()
        for message in self.pending:
            close_all(message.fds)
        self.pending.clear()


def close_all(fds: Sequence[int]) -> None:
    """Closes every descriptor of a message."""
    for fd in fds:
        os.close(fd)
