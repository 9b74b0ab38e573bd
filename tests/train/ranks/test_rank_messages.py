"""Messages from rank to rank beside the training."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

from notebook_accel import Accelerator, CheckpointError
from notebook_accel.launch.system import limits
from notebook_accel.train.checkpoints.all_ranks import GatheredTexts
from notebook_accel.train.ranks.rank_messages import RankMessages
from tests.train.conftest import launch

_LARGE = "x" * 2**20


def talk(folder: str) -> list[Any]:
    """On each rank: sends and gathers texts; at the end, rank 1 loses its connections, as if its process had ended."""
    accelerator = Accelerator()
    rank = accelerator.process_index
    messages = RankMessages()
    received: list[Any] = []
    messages.on("values", lambda sender, value: received.append((sender, value)))
    texts = GatheredTexts(messages)
    messages.start()
    for number in range(100):
        messages.send("values", number)
    messages.send("values", _LARGE)
    found = [texts.gather("do something", f"{rank}"), texts.gather("do something else", None)]
    gathered, lost = Path(folder, "gathered"), Path(folder, "lost")
    if rank == 1:
        while not gathered.exists():
            time.sleep(0.01)
        for each in limits.tcp_sockets():
            if each.family == socket.AF_INET and not limits.listens(each):  # the store's are dual-stack
                each.shutdown(socket.SHUT_RDWR)
        while not lost.exists():
            time.sleep(0.01)
        return [received, found]
    gathered.touch()
    try:
        texts.gather("write its files", "never answered")
    except CheckpointError as error:
        found.append(str(error))  # type: ignore[arg-type]
    lost.touch()
    return [received, found]


def test_values_arrive_in_order_and_the_end_of_a_rank_is_noticed(tmp_path: Path) -> None:
    first, second = launch(talk, str(tmp_path))
    for rank, (received, found) in enumerate((first, second)):
        assert received == [(1 - rank, value) for value in [*range(100), _LARGE]]
        assert found[:2] == [["0", "1"], [None, None]]
    assert first[1][2:] == ["rank 1 has ended"]


def close(folder: str) -> bool:
    """On each rank: closes, rank 0 last; returns whether that took no longer than it had to."""
    accelerator = Accelerator()
    messages = RankMessages()
    messages.on("values", lambda sender, value: Path(folder, f"from{sender}").touch())
    messages.start()
    if accelerator.process_index == 0:
        while not Path(folder, "from1").exists():
            time.sleep(0.01)
    messages.send("values", 0)  # which arrives, although this rank does nothing else
    messages.close()
    return not any(thread.is_alive() for thread in messages.threads)


def test_what_was_sent_before_a_rank_closes_arrives(tmp_path: Path) -> None:
    assert launch(close, str(tmp_path), size=3) == [True] * 3
    assert len(list(tmp_path.iterdir())) == 3
