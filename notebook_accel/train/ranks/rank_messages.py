"""Messages from rank to rank, outside the training loop. No collective, store, or other process takes part in them.

    any thread ─▶ queue ─▶ thread that sends ══ gloo ══▶ thread of another rank that receives ─▶ receiver of the topic

They have a process group of their own, and only send from one rank to another, since torch's flight recorder would show
collectives as if the training waited for them. Gloo reports the end of a rank only to a rank that sends to it.
"""

from __future__ import annotations

import datetime
import json
import queue
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from notebook_accel.train.ranks.state import PartialState

Receiver = Callable[[int, Any], None]
"""Receives a message's sender and its value, on the thread that receives."""

_TIMEOUT = datetime.timedelta(days=1)
"""How long a rank waits for the others at the start. Later, gloo waits for a message for so long, then the next one."""
_CLOSE, _CALL = -1, -2
"""In place of a length: the sender is done; the sender only finds out whether this rank has ended."""
_JOIN = 5.0
"""Seconds to wait for the threads at the end. They end at once, unless another rank is gone."""
LOOK_INTERVAL = 1.0
"""Seconds after which a rank that waits for a message looks again whether the others run."""


class RankMessages:
    """Sends values to all other ranks, and receives theirs. All ranks make it together; each value arrives in order."""

    def __init__(self) -> None:
        state = PartialState()
        self.rank = state.process_index
        self.size = state.num_processes
        self._others = [rank for rank in range(self.size) if rank != self.rank]
        self._group = dist.new_group(backend="gloo", timeout=_TIMEOUT, group_desc="notebook-accel messages")
        self._receivers: dict[str, Receiver] = {}
        self._unsent: queue.SimpleQueue[tuple[int, int | bytes]] = queue.SimpleQueue()
        """Receiver, and what to send."""
        self._ended: set[int] = set()
        self.threads = [
            threading.Thread(target=target, name="notebook-accel-messages", daemon=True)
            for target in (self._send, self._receive)
        ]

    def on(self, topic: str, receiver: Receiver) -> None:
        """Registers the receiver of a topic's values. Call it before `start`."""
        self._receivers[topic] = receiver

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def send(self, topic: str, value: Any) -> None:
        """Sends a value of JSON to all other ranks; waits for none."""
        data = json.dumps([topic, value]).encode()
        for rank in self._others:
            self._unsent.put((rank, data))

    def has_ended(self, rank: int) -> bool:
        """Whether the process of another rank is known to have ended; it is found out until the next call."""
        self._unsent.put((rank, _CALL))
        return rank in self._ended

    def close(self) -> None:
        """Ends the threads, once all ranks have called this. It waits for a moment only."""
        for rank in self._others:
            self._unsent.put((rank, _CLOSE))
        for thread in self.threads:
            thread.join(_JOIN)

    def _send(self) -> None:
        unclosed = set(self._others)
        while unclosed:
            rank, data = self._unsent.get()
            try:
                if isinstance(data, bytes):
                    dist.send(torch.tensor([len(data)]), rank, group=self._group)
                    dist.send(torch.frombuffer(bytearray(data), dtype=torch.uint8), rank, group=self._group)
                else:
                    dist.send(torch.tensor([data]), rank, group=self._group)
            except RuntimeError:  # the connection is closed
                self._ended.add(rank)
            if data == _CLOSE:
                unclosed.discard(rank)

    def _receive(self) -> None:
        unclosed = set(self._others)
        length = torch.zeros(1, dtype=torch.int64)
        while unclosed:
            try:
                rank = dist.recv(length, group=self._group)
                size = int(length)
                if size >= 0:
                    data = torch.zeros(size, dtype=torch.uint8)
                    dist.recv(data, rank, group=self._group)
            except RuntimeError:  # a rank has ended in the middle of a message
                return
            if size == _CLOSE:
                unclosed.discard(rank)
            elif size >= 0:
                topic, value = json.loads(data.numpy().tobytes())
                self._receivers[topic](rank, value)
