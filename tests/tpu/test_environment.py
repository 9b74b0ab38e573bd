"""What torch_xla makes of the environments of each kind of accelerator, once they are cleaned; the chips are fakes."""

import os
from collections.abc import Mapping

import pytest
from torch_xla._internal import tpu

from notebook_accel.launch.tpu.environment import cleaned

KIND, CHIPS = "TPU_ACCELERATOR_TYPE", "TPU_CHIPS_PER_HOST_BOUNDS"
HOST = {"TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_ID": "0", "TPU_WORKER_HOSTNAMES": "localhost"}
BOUNDS = {"TPU_HOST_BOUNDS": "1,1,1"}
OURS = {"PJRT_DEVICE": "TPU", "RANK": "0", "WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "none", "MASTER_PORT": "1"}
"""What a launch adds for every kind of rank."""
STALE = {
    "CLOUD_TPU_TASK_ID": "0", "TPU_PROCESS_PORT": "8476", "TPU_VISIBLE_CHIPS": "0", "PJRT_LOCAL_PROCESS_RANK": "0",
    "PJRT_LOCAL_PROCESS_COUNT": "1", "TPU_MESH_CONTROLLER_ADDRESS": "localhost:8476", "XLA_USE_SPMD": "1",
    "TPU_MESH_CONTROLLER_PORT": "8476", "XRT_TPU_CONFIG": "localservice;0;localhost:51011",
}  # fmt: skip
"""What an earlier launch in the same place leaves behind."""

# The accelerator's environment, its chips, and then for each process: all bounds, and whom the first talks to.
CASES: dict[str, tuple[Mapping[str, str], int, str, int]] = {
    "Colab v2-8": (HOST | BOUNDS | {KIND: "v2-8", CHIPS: "2,2,1"}, 4, "2,2,1", 2),
    "Colab v5e-1": (HOST | BOUNDS | {KIND: "v5e-1", CHIPS: "2,2,1"}, 1, "", 1),
    "Colab v6e-1": (HOST | BOUNDS | {KIND: "v6e-1", CHIPS: "2,2,1"}, 1, "", 1),
    "Kaggle v3-8": (HOST | {KIND: "v3-8", "TPU_PROCESS_ADDRESSES": "local"}, 4, "2,2,1", 2),
    "Kaggle v5e-8": (
        {"TPU_SKIP_MDS_QUERY": "1", KIND: "v5litepod-8", "TPU_PROCESS_ADDRESSES": "local",
         "TPU_PROCESS_BOUNDS": "1,1,1", "TPU_CHIPS_PER_PROCESS_BOUNDS": "2,4,1", "CLOUD_TPU_TASK_ID": "0",
         "TPU_WORKER_HOSTNAMES": "localhost"}, 8, "2,4,1", 1),
    "Cloud VM v4-8": (HOST | BOUNDS | {KIND: "v4-8", CHIPS: "2,2,1"}, 4, "2,2,1", 1),
    "Cloud VM v5p-8": (HOST | BOUNDS | {KIND: "v5p-8", CHIPS: "2,2,1"}, 4, "2,2,1", 1),
    "Cloud VM v6e-8": (HOST | BOUNDS | {KIND: "v6e-8", CHIPS: "2,4,1"}, 8, "2,4,1", 1),
}  # fmt: skip


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test puts into the environment is gone after it."""
    monkeypatch.setattr(os, "environ", os.environ.copy())


def enter(monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str], chips: int) -> None:
    for name in [name for name in os.environ if name.startswith(("TPU_", "PJRT_", "CLOUD_TPU"))]:
        del os.environ[name]
    os.environ.update(environment)
    monkeypatch.setattr(tpu, "num_available_chips", lambda: chips)


@pytest.mark.parametrize("stale", [{}, STALE], ids=["fresh", "stale"])
@pytest.mark.parametrize("kind", CASES)
@pytest.mark.usefixtures("environ")
def test_each_process_gets_its_chip(monkeypatch: pytest.MonkeyPatch, kind: str, stale: Mapping[str, str]) -> None:
    given, chips, bounds, cores = CASES[kind]
    environment = cleaned({**given, **{name: text for name, text in stale.items() if name not in given}, **OURS})
    enter(monkeypatch, environment, chips)
    if chips == 1:  # its one rank is the supervisor
        tpu.configure_one_chip_topology()
        assert os.environ["TPU_PROCESS_BOUNDS"] == os.environ["TPU_CHIPS_PER_PROCESS_BOUNDS"] == "1,1,1"
        assert os.environ["TPU_VISIBLE_CHIPS"] == "0"
        return
    assert tpu.num_local_processes() == chips
    assert tpu.num_logical_cores_per_chip() == cores
    for process in range(chips):
        enter(monkeypatch, environment, chips)
        tpu.configure_topology(process, chips)
        assert os.environ["TPU_PROCESS_BOUNDS"] == bounds
        assert os.environ["TPU_CHIPS_PER_PROCESS_BOUNDS"] == "1,1,1"
        assert (os.environ["TPU_VISIBLE_CHIPS"], os.environ["CLOUD_TPU_TASK_ID"]) == (str(process), str(process))
        assert os.environ["TPU_PROCESS_PORT"] == str(8476 + process)
        assert os.environ["TPU_PROCESS_ADDRESSES"].split(",") == [f"localhost:{8476 + other}" for other in range(chips)]


@pytest.mark.usefixtures("environ")
def test_kaggles_presets_would_leave_one_process_without_cleaning(monkeypatch: pytest.MonkeyPatch) -> None:
    given, chips, _, _ = CASES["Kaggle v5e-8"]
    enter(monkeypatch, given, chips)
    assert tpu.num_local_processes() == 1


def test_what_is_not_a_tpus_stays() -> None:
    kept = {"PATH": "/bin", "PJRT_DEVICE": "TPU", "XLA_FLAGS": "--xla_dump_to=/tmp", "LIBTPU_INIT_ARGS": "--a=b"}
    assert cleaned({**kept, **STALE, "LOCAL_RANK": "1"}) == {**kept, "TPU_WORKER_ID": "0"}


def test_a_host_that_tells_its_bounds_twice_is_believed_as_torch_xla_believes_it() -> None:
    found = cleaned({"TPU_PROCESS_BOUNDS": "1,1,1", "TPU_HOST_BOUNDS": "2,1,1"})
    assert found == {"TPU_HOST_BOUNDS": "2,1,1"}
