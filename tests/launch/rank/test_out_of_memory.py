"""What held a rank's memory: by name on the host, by torch's snapshot on a CUDA device."""

from __future__ import annotations

import pickle
import sys
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from notebook_accel import events
from notebook_accel.events import Event, LiveArray, MemorySnapshot
from notebook_accel.launch.rank import out_of_memory
from notebook_accel.launch.rank.out_of_memory import Growth, device_of, examine
from tests.hardware.fakes import FakeCuda

MB = 2**20


class Node:
    """A user's own object, which holds an array and itself."""

    def __init__(self) -> None:
        self.table = np.zeros(12 * MB, np.uint8)
        self.me = self

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("not today")


def train(batch: torch.Tensor) -> None:
    model = torch.nn.Linear(1024, 8 * 256)  # 8 MB
    model.weight.grad = torch.zeros_like(model.weight)  # and as much again
    history = []
    for _ in range(3):
        history.append(torch.zeros(MB))  # 4 MB each
    view = batch[:10]
    same = history
    node = Node()
    small = torch.zeros(3)
    first = model(torch.zeros(2048, 1024)).relu()  # autograd keeps the input, and so 8 MB without a name
    raise MemoryError((view, same, node, small, first))


def caught() -> BaseException:
    try:
        train(torch.zeros(5 * MB))
    except MemoryError as error:
        return error
    raise AssertionError


def test_the_largest_tensors_and_arrays_are_named_with_the_line_that_made_them() -> None:
    found = examine(caught(), "MemoryError")
    assert found is not None
    by_name = {array.name: array for array in found.arrays}
    assert (found.device, found.note) == ("cpu", "")
    sizes = {name: round(array.nbytes / MB) for name, array in by_name.items()}
    assert sizes.pop("") >= 8
    assert sizes == {"batch": 20, "model": 16, "history": 12, "node": 12, "first": 16}
    assert [array.nbytes for array in found.arrays] == sorted((each.nbytes for each in found.arrays), reverse=True)
    assert (by_name["history"].what, by_name["batch"].what) == ("3 tensors and arrays", f"float32 [{5 * MB}]")
    frame = by_name["history"].frame
    assert frame is not None
    assert (frame.name, frame.line) == ("train", "history = []")
    assert by_name["batch"].frame is None  # an argument


@pytest.mark.parametrize(
    ("error", "device"),
    [
        (MemoryError(), "cpu"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"), "cuda"),
        (torch.OutOfMemoryError("HIP out of memory. Tried to allocate 20.00 GiB"), "cuda"),
        (RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)"), "mps"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), "cpu"),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), ""),
        (ValueError("out of memory"), ""),
        (KeyboardInterrupt(), ""),
    ],
    ids=lambda value: value or "other" if isinstance(value, str) else type(value).__name__,
)
def test_exceptions_that_say_that_memory_has_run_out_are_known(error: BaseException, device: str) -> None:
    assert device_of(error, str(error)) == device
    assert (examine(error, str(error)) is None) == (not device)


def test_a_cuda_device_is_examined_by_the_lines_that_allocated_and_its_snapshot_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mine, torchs = ("/home/me/train.py", 12, "train"), (torch.nn.__file__, 9, "forward")
    cpp = ("??", 0, "at::empty_cuda")
    recorded = FakeCuda([(3 * MB, [cpp, torchs, mine]), (2 * MB, [mine]), (MB, [("/home/me/train.py", 4, "load")])])
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=recorded, Tensor=torch.Tensor, nn=torch.nn))
    sent: list[Event] = []
    events.set_sink(sent.append)
    try:
        found = examine(torch.OutOfMemoryError(), "CUDA out of memory.")
    finally:
        events.set_sink(None)
    assert found is not None
    assert [(each.device, each.nbytes, each.what, each.frame and each.frame.lineno) for each in found.arrays] == [
        ("cuda:0", 5 * MB, "2 blocks", 12),
        ("cuda:0", MB, "1 block", 4),
    ]
    [snapshot] = sent
    assert isinstance(snapshot, MemorySnapshot)
    [segment] = pickle.loads(bytes(snapshot.data[0]))["segments"]  # as torch's own viewer reads it
    assert (segment["allocated_size"], len(segment["blocks"])) == (6 * MB, 4)


def test_without_recorded_lines_it_is_said_how_to_record_them(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, data, note = out_of_memory.cuda_snapshot(SimpleNamespace(cuda=FakeCuda([(MB, [])])))
    assert (lines, bool(data)) == ([], True)
    assert "torch.cuda.memory._record_memory_history()" in note
    monkeypatch.setattr(out_of_memory, "MOST_BYTES", 10)
    assert out_of_memory.cuda_snapshot(SimpleNamespace(cuda=FakeCuda([(MB, [])])))[1:] == (
        b"", f"{note}. The snapshot of the memory is not saved, since it has 0 MB"
    )  # fmt: skip


def test_where_torch_has_not_used_cuda_no_snapshot_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    for found in (torch, None):  # this torch has no CUDA; another library may have used it without torch
        with monkeypatch.context() as patch:
            if found is None:
                patch.delitem(sys.modules, "torch")
            report = examine(torch.OutOfMemoryError(), "CUDA out of memory.")
        assert report is not None
        assert (report.arrays, report.note) == ([], "")


def test_a_torch_without_a_snapshot_is_no_second_error(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = SimpleNamespace(is_initialized=lambda: True, memory=SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, Tensor=torch.Tensor, nn=torch.nn))
    found = examine(torch.OutOfMemoryError(), "CUDA out of memory.")
    assert found is not None
    assert found.arrays == []
    assert found.note.startswith("There is no snapshot of the memory: AttributeError")


def test_a_process_that_grows_is_looked_at_from_another_thread_each_time_it_has_grown_by_a_fifth() -> None:
    growth = Growth(threading.get_ident(), free=1000 * MB)
    kept = np.zeros(7 * MB, np.uint8)
    found: list[list[Any]] = []

    def look() -> None:
        found.extend(growth.sample(size * MB) for size in (199, 200, 239, 240, 287, 289))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert [len(each) for each in found] == [0, 1, 0, 1, 0, 1]
    [report] = found[1]
    [array] = [each for each in report.arrays if each.name == "kept"]
    assert isinstance(array, LiveArray)
    assert (report.resident, array.nbytes, array.what) == (200 * MB, kept.nbytes, f"uint8 [{7 * MB}]")
    assert array.frame is not None
    assert array.frame.line.startswith("kept = ")
