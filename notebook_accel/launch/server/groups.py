"""The fork server's record of one group of ranks."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass, field

from notebook_accel.launch.wire.stream import Channel, Message, close_all


@dataclass
class Group:
    """The ranks of one launch on this node."""

    number: int
    channel: Channel
    """Receives requests for this group from the kernel, and sends it how ranks ended."""
    pids: dict[int, int] = field(default_factory=dict)
    """The process ID of each rank that has not been reaped."""
    pending: list[Message] = field(default_factory=list)
    """Ranks to start once all nodes have joined the rendezvous."""
    has_rendezvous: bool = False
    exits_expected: bool = False
    """All ranks have sent their results and are about to exit by themselves, so closing the group needs no kill."""
    failed: bool = False
    """Some rank could not be started, so the others are not started either."""
    closed: bool = False

    @property
    def is_over(self) -> bool:
        """Whether it is closed and every rank has been reaped."""
        return self.closed and not self.pids

    def signal(self, rank: int, signum: int) -> None:
        """Sends a signal to a rank; SIGKILL goes to its whole process group."""
        for message in [each for each in self.pending if each.header["rank"] == rank]:
            self.pending.remove(message)  # it has not been started, and never will be
            close_all(message.fds)
            self.report_end(rank, -signum, None)
        if rank not in self.pids:
            return
        if signum == signal.SIGKILL:
            with contextlib.suppress(ProcessLookupError):  # it has not called `setsid` yet
                os.killpg(self.pids[rank], signum)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pids[rank], signum)

    def kill(self) -> None:
        """Kills every rank, and reaps it."""
        for rank in self.pids:
            self.signal(rank, signal.SIGKILL)
        for pid in self.pids.values():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        self.pids.clear()

    def report_end(self, rank: int, status: int, peak: int | None) -> None:
        """Sends the kernel the exit status of a rank, and its peak memory in bytes."""
        with contextlib.suppress(OSError):  # the kernel has just closed the group
            self.channel.send({"rank": rank, "status": status, "at": time.time(), "peak": peak})

    def fail(self, error: str) -> None:
        """Sends the kernel the reason why the ranks can't be started; the kernel then closes the group."""
        self.failed = True
        with contextlib.suppress(OSError):
            self.channel.send({"error": error})

    def release(self) -> None:
        """Closes the descriptors that this process holds for the group."""
        self.channel.close()
        for message in self.pending:
            close_all(message.fds)
        self.pending.clear()
