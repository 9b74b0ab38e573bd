import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from notebook_accel.hardware import Device, FixedProbe, detect
from tests.hardware.rows import change_row

UUIDS = ("GPU-aa11", "GPU-aa22", "GPU-bb33", "GPU-cc44")
FOUR = FixedProbe([Device("H200", uuid, total=2**37) for uuid in UUIDS])
NONE = FixedProbe([])


def shown(setting: str | None) -> tuple[list[str], list[str]]:
    found = detect({} if setting is None else {"CUDA_VISIBLE_DEVICES": setting}, FOUR)
    return [gpu.uuid for gpu in found.gpus], list(found.gpu_ids)


@pytest.mark.parametrize(
    ("setting", "indices", "ids"),
    [
        (None, [0, 1, 2, 3], ["0", "1", "2", "3"]),
        ("2,0", [2, 0], ["2", "0"]),
        (" 1 , 3 ", [1, 3], ["1", "3"]),
        ("GPU-bb33,GPU-aa11", [2, 0], ["GPU-bb33", "GPU-aa11"]),
        ("GPU-b", [2], ["GPU-b"]),
        ("GPU-aa1,GPU-c", [0, 3], ["GPU-aa1", "GPU-c"]),
        ("GPU-aa", [], []),  # it names two
        ("GPU-dd,GPU-aa11", [], []),
        ("GPU-aa11,2", [0], ["GPU-aa11"]),  # the first entry decides how all are read
        ("0,GPU-bb33", [0], ["0"]),
        ("0,7,1", [0], ["0"]),
        ("1,-1,2", [1], ["1"]),
        ("-1", [], []),
        ("1,,2", [1], ["1"]),
        ("", [], []),
        ("NoDevFiles", [], []),
        ("0,0", [], []),  # a repetition hides all
        ("GPU-aa11,GPU-bb33,GPU-aa11", [], []),
    ],
)
def test_cuda_visible_devices_says_which_gpus_there_are_and_in_which_order(
    setting: str | None, indices: Sequence[int], ids: Sequence[str]
) -> None:
    assert shown(setting) == ([UUIDS[index] for index in indices], ids)


@given(st.lists(st.sampled_from(["0", "1", "2", "3", "4", "-1", "x", "", "GPU-aa", *UUIDS]), max_size=4))
def test_gpus_are_numbered_as_torch_numbers_them(entries: list[str]) -> None:
    setting = ",".join(entries)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", setting)
        parsed: Any = torch.cuda._parse_visible_devices()
    if parsed and isinstance(parsed[0], str):
        parsed = torch.cuda._transform_uuid_to_ordinals(parsed, list(UUIDS))
    elif any(index >= len(UUIDS) for index in parsed):
        parsed = parsed[: next(at for at, index in enumerate(parsed) if index >= len(UUIDS))]
    assert shown(setting)[0] == [UUIDS[index] for index in parsed]


@pytest.mark.parametrize("setting", ["", "9"])
def test_hidden_gpus_are_accounted_for(setting: str) -> None:
    found = detect({"CUDA_VISIBLE_DEVICES": setting}, FOUR)
    assert found.kind != "cuda"
    assert found.hidden_gpus == f"CUDA_VISIBLE_DEVICES={setting!r} hides them"


def test_no_reason_is_given_where_nothing_is_hidden() -> None:
    assert detect({}, FOUR).hidden_gpus == ""
    assert detect({"CUDA_VISIBLE_DEVICES": "1"}, FOUR).hidden_gpus == ""
    assert detect({"CUDA_VISIBLE_DEVICES": ""}, NONE).hidden_gpus == ""


def test_gpus_are_used_before_the_cpu() -> None:
    assert detect({}, FOUR).kind == "cuda"
    assert detect({}, NONE).kind in ("cpu", "mps")


def test_the_environment_of_this_process_counts_where_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert detect(probe=FOUR).gpu_ids == ("3",)


def test_a_torch_without_cuda_hides_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    change_row(monkeypatch, "cuda", probe=lambda: FOUR)
    monkeypatch.setattr(torch.version, "cuda", None)
    assert detect({}).hidden_gpus == "the installed torch is built without CUDA"
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    assert len(detect({}).gpus) == 4


ONE_THAT_LOOKS = """
import os, sys
import notebook_accel
from notebook_accel import hardware
print(hardware.detect())
print(sorted(name for name in sys.modules if name in ("torch", "numpy", "IPython", "tqdm", "ipywidgets", "psutil")))
for fd in os.listdir("/proc/self/fd"):
    if os.path.exists(f"/proc/self/fd/{fd}"):
        print(os.readlink(f"/proc/self/fd/{fd}"))
"""


def test_looking_at_the_hardware_neither_imports_torch_nor_opens_a_device() -> None:
    before = os.times()
    ran = subprocess.run([sys.executable, "-c", ONE_THAT_LOOKS], capture_output=True, text=True, check=True)
    seconds = os.times().children_user - before.children_user  # of a core, whatever else the machine does
    _, imported, *files = ran.stdout.splitlines()
    assert imported == "['psutil']"
    assert not [path for path in files if path.startswith("/dev/nvidia")]
    assert seconds < 1.5, "importing torch takes 2 s; all this takes 0.3 s"


@pytest.mark.smoke
def test_importing_the_package_starts_nothing() -> None:
    script = "import notebook_accel, psutil, threading; print(psutil.Process().children(), threading.active_count())"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "[] 1\n"
    assert ran.stderr == ""
