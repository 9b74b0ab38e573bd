import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from notebook_accel import hardware
from notebook_accel.config import resolve
from notebook_accel.config.layers import Layer
from notebook_accel.hardware import Accelerator, Device, DeviceUse, FixedProbe, Listing
from notebook_accel.notebook.magics import job_commands, status
from tests.hardware.fakes import fake_hardware

NOBODY = max(psutil.pids()) + 10_000
GPUS = fake_hardware([Device("H200", f"GPU-{index}", 100 * 2**30) for index in range(3)], cores=16)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """One with GPUs, of which a process of each kind holds memory."""
    uses = {
        "GPU-0": DeviceUse(3 * 2**30, {os.getpid(): 2 * 2**30, NOBODY: 0}),
        "GPU-1": DeviceUse(2**20, {os.getppid(): 2**20}),
    }
    monkeypatch.setattr(hardware, "detect", lambda *_: GPUS)
    monkeypatch.setattr(hardware, "memory_use", lambda: uses)


@pytest.fixture
def set_magic_layer() -> Iterator[Callable[[Layer], None]]:
    """Sets what `%accelerate` would, until the end of the test."""
    before = resolve.magic_layer()
    yield resolve.set_magic_layer
    resolve.set_magic_layer(before)


@pytest.mark.usefixtures("machine")
def test_it_tells_who_holds_the_memory_of_each_gpu() -> None:
    first, second, third, cpu = status.collect().devices
    mine = f"this notebook (process {os.getpid()}), 2.0 GB"
    assert list(first) == ["GPU 0: H200", "3.0 GB of 100.0 GB", f"{mine}; process {NOBODY}"]
    assert f"(process {os.getppid()}), 1 MB" in second[2]
    assert list(third) == ["GPU 2: H200", "", ""]
    assert cpu[0] == "CPU, 16 cores"


def test_it_lists_a_device_of_any_kind_that_ranks_run_on(monkeypatch: pytest.MonkeyPatch) -> None:
    found = fake_hardware(mps=True)
    monkeypatch.setattr(hardware, "detect", lambda *_: found)
    apple, cpu = status.collect().devices
    assert list(apple) == ["Apple GPU", "shared with the CPU", ""]
    assert cpu[0] == "CPU, 2 cores"
    assert cpu[1].endswith(" of 64.0 GB")
    npu = Accelerator(
        name="npu", title="NPUs", device="npu", torch_type="npu", backend="gloo", probe=lambda: FixedProbe([])
    )
    monkeypatch.setattr(hardware, "ACCELERATORS", (*hardware.ACCELERATORS, npu))
    found = replace(found, listings={**found.listings, "npu": Listing((Device("NPU 1", "NPU-0", 0),), ("0",))})
    assert [row[0] for row in status.collect().devices] == ["Apple GPU", "CPU, 2 cores", "NPU 1"]


@pytest.mark.usefixtures("machine")
def test_it_tells_what_a_launch_would_do_or_why_it_would_be_refused(
    set_magic_layer: Callable[[Layer], None],
) -> None:
    assert status.collect().preview == "a launch now: 3 ranks on 3 × H200 · nccl"
    set_magic_layer(Layer("magic", {"gpus": (4,)}, {"gpus": "%accelerate --gpus"}))
    assert status.collect().preview == (
        "a launch would be refused: asked for GPU 4 (from %accelerate --gpus), found 3 (numbered from 0)"
    )


@pytest.mark.usefixtures("machine")
def test_those_who_keep_ranks_tell_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_commands, "running", lambda: ["2 ranks of <b>", "1 job"])
    shown = status.collect()
    assert "\n2 ranks of <b>\n1 job\n" in repr(shown)
    devices, settings, rest = repr(shown).split("\n\n")  # two tables, and what runs
    assert (devices.split()[0], settings.split()[0], rest.splitlines()[0]) == ("Device", "Setting", "2 ranks of <b>")
    assert "2 ranks of &lt;b&gt;" in shown._repr_html_()


@pytest.mark.usefixtures("machine")
def test_it_shows_nothing_that_a_shared_notebook_should_not_hold(
    monkeypatch: pytest.MonkeyPatch, set_magic_layer: Callable[[Layer], None], tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text("import os, sys\nprint(os.getpid(), flush=True)\nsys.stdin.read()\n")
    command = [sys.executable, str(script), "--token", "secret"]
    # The shell ends at once, and leaves a process that this one is no ancestor of.
    leave = ["sh", "-c", 'exec 3<&0; "$@" <&3 &', "sh", *command]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other,
        subprocess.Popen(leave, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as shell,
    ):
        assert other.stdout is not None
        assert shell.stdout is not None
        other.stdout.readline()
        left = int(shell.stdout.readline())
        shell.wait()
        uses = {"GPU-0": DeviceUse(2**20, {other.pid: 0}), "GPU-1": DeviceUse(2**20, {left: 0})}
        monkeypatch.setattr(hardware, "memory_use", lambda: uses)
        layer = Layer("file", {"max_restarts": 1}, {"max_restarts": f"max_restarts in {Path.home()}/config.yaml"})
        set_magic_layer(layer)
        shown = repr(status.collect())
    assert f"started by this notebook (process {other.pid})" in shown
    assert "max_restarts in ~/config.yaml" in shown
    assert f"{Path(sys.executable).name} train.py (process {left})" in shown
    assert str(tmp_path) not in shown
    assert "secret" not in shown
