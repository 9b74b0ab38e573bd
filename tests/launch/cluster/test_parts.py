"""The parts of the relay between a notebook and machines, without a cluster."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from notebook_accel.config import LaunchConfig
from notebook_accel.events import Bar, Event, Hello, Lines, Metrics, Notice, Returned, Written, from_wire
from notebook_accel.launch.cluster import event_frames, shared_folders
from notebook_accel.launch.cluster.agent_launcher import ClusterError
from notebook_accel.launch.cluster.clock_offset import ClockOffset
from notebook_accel.launch.cluster.event_frames import EventFrames
from notebook_accel.launch.cluster.frame_queue import FrameQueue
from notebook_accel.launch.cluster.protocol import Frame
from notebook_accel.launch.cluster.shared_folders import Folders, SentFolders
from notebook_accel.launch.engines import cluster_engine
from notebook_accel.launch.engines.contract import NodeInfo
from notebook_accel.launch.plan import cluster_nodes
from notebook_accel.launch.system.node_environment import shared_environment
from notebook_accel.launch.wire.stream import Decoder

PATIENCE = 60.0

# What an agent has to tell


def said(event: Event, rank: int = 0) -> Frame:
    return EventFrames(1, "node-b", ClockOffset(100.0, 0.25)).of(rank, event)


class Connection:
    """What a queue sends to: it doesn't read until it is released."""

    def __init__(self) -> None:
        self.sent: list[list[Frame]] = []
        self.is_closed = threading.Event()
        self._is_read = threading.Event()
        self._has_frames = threading.Event()
        self.queue = FrameQueue(self._send, self.is_closed.set)
        self.queue.add(said(Hello(1, "")))
        self.queue.flush()
        assert self._has_frames.wait(PATIENCE)

    def _send(self, frames: Sequence[Frame]) -> None:
        self.sent.append(list(frames))
        self._has_frames.set()
        assert self._is_read.wait(PATIENCE)

    def read_to_the_end(self) -> list[Frame]:
        """What was sent while it did not read."""
        self.queue.close()
        self._is_read.set()
        assert self.is_closed.wait(PATIENCE)
        _, *rest = self.sent
        return [frame for frames in rest for frame in frames]


def test_frames_are_sent_in_order_and_before_the_connection_is_closed() -> None:
    connection = Connection()
    lines = [said(Lines("stdout", [str(number)])) for number in range(3)]
    for line in lines:
        connection.queue.add(line)
    assert connection.read_to_the_end() == lines


def test_of_a_bar_only_the_latest_state_waits() -> None:
    connection = Connection()
    states = [said(Bar(bar=1, n=float(n)), rank) for n in range(3) for rank in range(2)]
    weight = sum(header["weight"] for header, _ in states)
    for frame in (said(Lines("stdout", ["first"])), *states):
        connection.queue.add(frame)
    found = connection.read_to_the_end()
    assert found == [said(Lines("stdout", ["first"])), *states[-2:]]
    assert sum(header["weight"] for header, _ in found[1:]) == weight, "a rank waits for as much to be read as it said"


def test_a_queue_without_frames_gives_a_sign_of_life() -> None:
    is_idle, is_closed = threading.Event(), threading.Event()
    queue = FrameQueue(lambda frames: frames or is_idle.set(), is_closed.set, idle=0.001)
    assert is_idle.wait(PATIENCE)
    queue.close()
    queue.join(PATIENCE)
    assert is_closed.is_set()


def test_what_a_rank_says_without_a_break_travels_in_one_frame() -> None:
    bars = [said(Bar(bar=1, n=float(n)), rank) for n in range(2) for rank in range(2)]
    wrote = said(Written("stdout", [b"line"]))
    frames = event_frames.coalesce([*bars, wrote, bars[0], ({"op": "compared", "group": 1, "lacking": []}, ())])
    assert [(header["op"], header.get("rank")) for header, _ in frames] == [
        *(("events", 0), ("events", 1), ("events", 0), ("events", 0), ("compared", None))
    ]
    assert [heard(frames[at]) for at in (0, 3)] == [[Bar(bar=1, n=0.0), Bar(bar=1, n=1.0)], [Bar(bar=1, n=0.0)]]
    told = [*bars, wrote, bars[0]]
    assert sum(header.get("weight", 0) for header, _ in frames) == sum(header["weight"] for header, _ in told)


def test_what_has_binary_parts_or_is_long_travels_alone() -> None:
    long = Notice("x" * 2**15)
    told = [Bar(bar=1, n=0.0), Returned([b"value"]), long, Bar(bar=1, n=1.0), Bar(bar=1, n=2.0)]
    frames = event_frames.coalesce([said(event) for event in told])
    assert [heard(frame) for frame in frames] == [[told[0]], [told[1]], [told[2]], told[3:]]


def test_a_rank_is_told_of_in_the_notebooks_terms() -> None:
    assert heard(event_frames.coalesce([said(Hello(7, "its own name"))])[0]) == [Hello(7, "node-b")]
    metrics = Metrics({"loss": 1.0}, 3, at=1100.0)
    assert heard(event_frames.coalesce([said(metrics)])[0]) == [replace(metrics, at=1000.0)]


def heard(frame: Frame) -> list[Event]:
    """What the kernel makes of it."""
    return [from_wire(header, blobs) for header, blobs in Decoder().feed(b"".join(frame[1]))]


# Folders


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    for name, text in {"own.py": "VALUE = 1", "part/deep.py": "", ".git/config": "", "env/pyvenv.cfg": ""}.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    (place / "env" / "large.py").write_text("")
    return place


def bring(sent_folders: SentFolders, here: Folders, project: Path) -> list[Frame]:
    frames = list(sent_folders.updates([str(project)], {str(project): shared_folders.scan(str(project))}))
    for header, blobs in frames:
        here.take(header, blobs)
    return frames


def test_a_folder_that_is_the_same_is_used_as_it_is(project: Path, tmp_path: Path) -> None:
    here, sent_folders = Folders(str(tmp_path / "home")), SentFolders()
    with shared_folders.marked([str(project)]) as asked:
        sent_folders.add_answer([*asked], here.compare(asked))
    assert here.paths == {str(project): str(project)}
    assert bring(sent_folders, here, project) == []
    assert sorted(os.listdir(project)) == [".git", "env", "own.py", "part"], "the marker is gone"


def test_another_gets_the_files_and_later_those_that_have_changed(project: Path, tmp_path: Path) -> None:
    here, sent_folders = Folders(str(tmp_path / "home")), SentFolders()
    asked = {str(project): "a marker that is not there"}
    sent_folders.add_answer([*asked], here.compare(asked))
    bring(sent_folders, here, project)
    place = Path(here.paths[str(project)])
    assert sorted(path.name for path in place.rglob("*")) == ["deep.py", "own.py", "part"]
    (project / "own.py").write_text("VALUE = 22")
    (project / "part" / "deep.py").unlink()
    [(header, _)] = bring(sent_folders, here, project)
    assert ([name for name, _ in header["files"]], header["gone"]) == (["own.py"], ["part/deep.py"])
    assert (place / "own.py").read_text() == "VALUE = 22"
    assert not (place / "part" / "deep.py").exists()
    assert bring(sent_folders, here, project) == []


def test_a_folder_that_holds_too_much_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_folders, "MOST_BYTES", 5)
    with pytest.raises(ClusterError, match=r"must be sent to the machines.*a file system that all machines share"):
        shared_folders.scan(str(project))


def test_the_users_own_folders_are_told_from_those_of_packages(project: Path) -> None:
    path = [
        "",
        os.__file__.rpartition(os.sep)[0],
        pytest.__file__.rpartition(os.sep + "pytest")[0],
        str(project / "part"),
    ]
    assert cluster_engine.own(str(project), path) == [str(project), str(project / "part")]


# The plan


def test_what_is_a_machines_own_stays_there() -> None:
    environ = {"PATH": "/bin", "LD_LIBRARY_PATH": "/lib", "RAY_ADDRESS": "x", "HF_HOME": "/data", "SEED": "1"}
    assert shared_environment(environ) == {"HF_HOME": "/data", "SEED": "1"}


def test_gpus_are_used_where_every_machine_has_some() -> None:
    gpus, none = NodeInfo("a", "10.0.0.1", 8, 2), NodeInfo("b", "10.0.0.2", 8, 0)
    config = LaunchConfig(cluster="auto", num_nodes=2)
    assert cluster_nodes.device(config, [gpus, none]) == "cpu"
    assert cluster_nodes.device(config, [gpus, gpus, none]) == "cuda"
    assert cluster_nodes.size(config, "cuda", [gpus, gpus, none]) == 4
    wanted = cluster_nodes.request(config, "cuda", 4, [gpus, gpus, none])
    assert (wanted.count, wanted.gpus, str(wanted)) == (2, 2, "2 GPUs")
