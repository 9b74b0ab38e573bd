import gc
import json
import os
import random
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from notebook_accel import PayloadError, notebook_launcher
from notebook_accel.launch.wire import payload
from notebook_accel.launch.wire.pickling import OUT_OF_BAND
from tests import shared_server

MEGABYTE = 2**20


@pytest.fixture
def no_descriptor_leaks() -> Iterator[None]:
    before = os.listdir("/dev/fd")
    yield
    assert os.listdir("/dev/fd") == before


def on_ranks(function: Callable[..., Any], *args: Any, size: int = 1, **options: Any) -> Any:
    return notebook_launcher(function, args, size, device="cpu", **options)


# Packing


def captured(value: Any) -> Callable[[], Any]:
    return lambda: value


@pytest.mark.parametrize("make", [lambda: np.ones(5 * MEGABYTE, np.uint8), lambda: torch.ones(5 * MEGABYTE // 4)])
def test_a_large_capture_is_a_part_of_its_own(make: Callable[[], Any]) -> None:
    with payload.pack(captured(make()), (), {}) as packed:
        _, call, *buffers = packed.layout
        assert buffers == [5 * MEGABYTE]
        assert call < OUT_OF_BAND
        (fd,) = packed.fds
        size = os.fstat(fd).st_size
        assert sum(packed.layout) <= size < sum(packed.layout) + 3 * resource.getpagesize()


def test_the_parts_begin_on_pages_and_hold_their_bytes() -> None:
    arrays = [np.full(OUT_OF_BAND + odd, odd % 251, np.uint8) for odd in (0, 1, 4095, 4096, 4097)]
    with payload.pack(captured(arrays), (), {}) as packed:
        (fd,) = packed.fds
        at = 0
        for length, array in zip(packed.layout, [None, None, *arrays], strict=True):
            if array is not None:
                assert os.pread(fd, length, at) == array.tobytes()
            at += -(-length // resource.getpagesize()) * resource.getpagesize()


@pytest.mark.usefixtures("no_descriptor_leaks")
def test_a_payload_takes_one_descriptor_until_it_is_closed() -> None:
    before = len(os.listdir("/dev/fd"))
    with payload.pack(captured(np.ones(MEGABYTE)), (), {}) as packed:
        assert len(os.listdir("/dev/fd")) == before + 1
        (fd,) = packed.fds
        assert not os.get_inheritable(fd)


@pytest.mark.usefixtures("no_descriptor_leaks")
def test_what_cannot_be_pickled_leaves_no_descriptor() -> None:
    with pytest.raises(PayloadError, match=r"args\[1\]"):
        payload.pack(print, (np.ones(MEGABYTE), threading.Lock()), {})


@pytest.mark.usefixtures("no_descriptor_leaks")
@pytest.mark.parametrize(("size", "shown"), [(300_000_000, r"0\.3 GB"), (3_000_000, r"3\.0 MB")])
def test_what_no_file_can_hold_says_how_large_it_is_and_which_limit_that_is(size: int, shown: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MEGABYTE, hard))
    try:
        with pytest.raises(PayloadError, match=rf"captures {shown}.*ulimit -f.*load the data inside the function"):
            payload.pack(captured(np.zeros(size, np.uint8)), (), {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_call_that_stays_here_is_not_copied() -> None:
    value = [1]
    held = payload.wrap_in_process(value.append, (2,), {}).unpacked
    assert held is not None
    held()
    assert value == [1, 2]


# Return values


def returned(value: Any) -> Any:
    return payload.unpack_value([bytearray(part) for part in payload.pack_value(value, frozenset())])


def test_nothing_is_sent_for_none() -> None:
    assert payload.pack_value(None, frozenset()) == []
    assert payload.unpack_value([]) is None


@pytest.mark.parametrize("value", [0, "", [], {"loss": 0.5}, (1, [2, {3}])])
def test_a_plain_value_comes_back(value: Any) -> None:
    assert returned(value) == value


def test_arrays_and_tensors_come_back() -> None:
    value = returned(
        {"array": np.arange(MEGABYTE), "tensor": torch.arange(MEGABYTE), "grad": torch.ones(2, requires_grad=True)}
    )
    assert value["array"][-1] == value["tensor"][-1] == MEGABYTE - 1
    assert value["grad"].requires_grad
    value["array"][0] = value["tensor"][0] = 7


def test_a_packed_value_needs_neither_the_value_nor_the_pickler() -> None:
    size = 2**22  # its memory goes back to the system as it is freed
    parts = payload.pack_value([torch.arange(size), torch.ones(size)], frozenset())
    gc.collect()
    numbers, ones = payload.unpack_value([bytearray(part) for part in parts])
    assert torch.equal(numbers, torch.arange(size))
    assert torch.equal(ones, torch.ones(size))


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (threading.Lock(), "`result` is a _thread.lock"),
        ({"model": {"lock": threading.Lock()}}, r"`result\['model'\]\['lock'\]` is a _thread.lock"),
        ([1, (number for number in [1])], r"`result\[1\]` is a generator"),
    ],
)
def test_a_value_that_cannot_come_back_is_named(value: Any, named: str) -> None:
    with pytest.raises(PayloadError, match=named + ".*numbers, arrays, tensors, a model's state_dict"):
        payload.pack_value(value, frozenset())


# On a rank


def test_a_call_arrives_with_its_arguments() -> None:
    def call(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    assert on_ranks(call, 1, [2], kwargs={"a": 3}) == [((1, [2]), {"a": 3})]


def test_ranks_get_copies_of_their_own_that_they_can_write_to(tmp_path: Path) -> None:
    array, tensor, small = np.zeros(MEGABYTE), torch.zeros(MEGABYTE), [0]

    def write(barrier: Sequence[str]) -> Any:
        import os
        import time

        rank = int(os.environ["RANK"])
        array[:] = tensor[:] = rank + 1
        small[0] = rank + 1
        open(barrier[rank], "w").close()
        while not os.path.exists(barrier[1 - rank]):  # both have written
            time.sleep(0.001)
        return array.max(), array.min(), tensor.max().item(), tensor.min().item(), small[0]

    barrier = str(tmp_path / "0"), str(tmp_path / "1")
    assert on_ranks(write, barrier, size=2) == [(1, 1, 1, 1, 1), (2, 2, 2, 2, 2)]
    assert array.max() == tensor.max() == small[0] == 0


def test_a_capture_is_mapped_and_not_read() -> None:
    array = np.ones(64 * MEGABYTE, np.uint8)

    def pages() -> tuple[int, int]:
        def resident() -> int:
            with open("/proc/self/smaps_rollup") as file:
                return sum(int(line.split()[1]) for line in file if line.startswith("Private_Dirty"))

        before = resident()
        return int(array[0]), resident() - before

    ((first, kilobytes),) = on_ranks(pages)
    assert first == 1
    assert kilobytes < 1000


def test_the_ranks_see_what_was_there_at_the_launch(tmp_path: Path) -> None:
    array = np.zeros(MEGABYTE)

    def total(path: str) -> float:
        with open(path) as pipe:
            pipe.read()
        return float(array.sum())

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    job = on_ranks(total, str(pipe), block=False)
    array[:] = 1
    pipe.write_text("go")
    assert job.result() == [0.0]


def test_a_rank_takes_on_the_state_of_the_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "argv", ["notebook", "--flag"])
    monkeypatch.setenv("OF_THE_NOTEBOOK", "1")

    def state() -> Any:
        import os
        import sys

        return os.getcwd(), sys.path, sys.argv, os.environ["OF_THE_NOTEBOOK"]

    assert on_ranks(state) == [(str(tmp_path), sys.path, ["notebook", "--flag"], "1")]


def draw() -> Any:
    import random

    import numpy as np
    import torch

    return random.random(), np.random.rand(), torch.rand(1).item(), torch.initial_seed()


@pytest.fixture
def random_states() -> Iterator[None]:
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    yield
    random.setstate(before[0])
    np.random.set_state(before[1])
    torch.set_rng_state(before[2])


@pytest.mark.usefixtures("random_states")
@pytest.mark.parametrize("seed", [17, 2**40, -1])
def test_a_rank_draws_what_the_notebook_would_have_drawn(seed: int) -> None:
    np.random.seed(17)
    torch.manual_seed(seed)
    drawn = on_ranks(draw, size=2)
    assert drawn == [draw()] * 2


@pytest.mark.usefixtures("random_states")
def test_ranks_draw_their_own_numbers_where_the_notebook_has_not_seeded() -> None:
    seeded = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.MT19937())
    torch.seed()
    try:
        first, second, third = on_ranks(draw, size=3)
        assert first == draw()
    finally:
        np.random.set_bit_generator(seeded)
    assert [len(set(drawn)) for drawn in zip(first, second, third, strict=True)] == [1, 3, 3, 3]


def test_a_rank_computes_as_the_notebook_would() -> None:
    def settings() -> Any:
        import torch

        return (
            str(torch.zeros(1).dtype),
            torch.get_float32_matmul_precision(),
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        )

    before = settings()
    try:
        torch.set_default_dtype(torch.float64)
        torch.set_float32_matmul_precision("medium")
        torch._C._set_deterministic_algorithms(True, warn_only=True)  # which imports no compiler here
        assert on_ranks(settings) == [("torch.float64", "medium", True, True)]
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_float32_matmul_precision("highest")
        torch._C._set_deterministic_algorithms(False, warn_only=False)
    assert on_ranks(settings) == [before]


def test_the_files_of_the_notebook_are_read_anew_by_each_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))

    def read() -> int:
        import edited_between_launches

        return int(edited_between_launches.NUMBER)

    for number in range(3):
        (tmp_path / "edited_between_launches.py").write_text(f"NUMBER = {number}\n")
        assert on_ranks(read) == [number]


# From `__main__`, as in a notebook

SCRIPT = """
import dataclasses, enum, inspect, json, multiprocessing, os, pickle
import torch
from torch.utils.data import DataLoader, Dataset
from notebook_accel import RankError, notebook_launcher

counter = 0

class Color(enum.Enum):
    RED = 1

@dataclasses.dataclass
class Point:
    x: int
    color: Color = Color.RED

class Model(torch.nn.Linear):
    def __init__(self):
        super().__init__(2, 2)

class Squares(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return Point(index).x ** 2

class Parents(Dataset):
    def __len__(self):
        return 1
    def __getitem__(self, index):
        with open(f"/proc/{os.getppid()}/maps") as file:
            return "libtorch" in file.read()

class Broken(Exception):
    pass

def helper():
    global counter
    counter += 1
    return counter

def square(number, pipe):
    pipe.send(Point(number).x ** 2)

def classes_travel(point):
    assert type(point) is Point and Point.__module__ == "__main__"
    return point, Point, Color.RED, Model().state_dict()["weight"].shape, Model()

def globals_are_the_ranks_own():
    helper()
    import __main__
    return helper(), __main__.counter

def pickles_by_name():
    return pickle.loads(pickle.dumps(Point(3))) == Point(3), len(pickle.dumps(Point))

def forked():
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=square, args=(7, theirs))
    process.start()
    squared = ours.recv()
    process.join()
    return squared

def loaded(method):
    return [int(value) for value in DataLoader(Squares(), num_workers=1, multiprocessing_context=method)]

def parent_of_worker_has_torch():
    return [bool(value) for value in DataLoader(Parents(), num_workers=1, multiprocessing_context="forkserver")]

def source():
    return inspect.getsource(helper)

def breaks():
    raise Broken("so")

def one(function, *args):
    return notebook_launcher(function, args, 1, device="cpu")[0]

found = {}
sent = Point(5)
point, cls, member, shape, model = one(classes_travel, sent)
found["classes"] = [point == sent, type(point) is Point, cls is Point, member is Color.RED, type(model) is Model]
found["shape"] = list(shape)
found["globals"] = [one(globals_are_the_ranks_own), counter]
found["pickle"] = one(pickles_by_name)
found["workers"] = [one(forked), one(loaded, "fork"), one(loaded, "spawn"), one(loaded, "forkserver")]
found["parent of a worker"] = one(parent_of_worker_has_torch)
found["source"] = one(source) == inspect.getsource(helper)
found["lambda"] = one(lambda: helper() + helper())
try:
    one(breaks)
except RankError as error:
    found["raised"] = [type(error.__cause__) is Broken, str(error.__cause__)]
print("FOUND" + json.dumps(found))
"""


@pytest.fixture(scope="module")
def found_by_a_script(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("script") / "script.py"
    path.write_text(SCRIPT)
    environ = {**os.environ, **shared_server.environment()}
    ran = subprocess.run([sys.executable, path], env=environ, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.partition("FOUND")[2])
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("classes", [True] * 5),
        ("shape", [2, 2]),
        ("globals", [[2, 2], 0]),
        ("workers", [49, [0, 1, 4, 9], [0, 1, 4, 9], [0, 1, 4, 9]]),
        ("parent of a worker", [True]),
        ("source", True),
        ("lambda", 3),
        ("raised", [True, "so"]),
    ],
)
def test_what_main_defines_lives_in_the_ranks_main(
    what: str, expected: object, found_by_a_script: dict[str, Any]
) -> None:
    assert found_by_a_script[what] == expected


def test_a_rank_pickles_the_classes_of_main_by_name(found_by_a_script: dict[str, Any]) -> None:
    same, size = found_by_a_script["pickle"]
    assert same
    assert size < 100
