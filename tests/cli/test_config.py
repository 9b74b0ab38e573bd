import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from click.testing import CliRunner, Result

from notebook_accel import hardware
from notebook_accel.cli.config import command
from notebook_accel.errors import ConfigurationError
from notebook_accel.hardware import Device, Hardware
from tests.hardware.fakes import fake_hardware
from tests.live_notebook import wait_until

NO_GPU = fake_hardware(cores=8)


def with_gpus(count: int) -> Hardware:
    return fake_hardware([Device("H200", f"GPU-{index}", 2**37) for index in range(count)], cores=16)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


@pytest.fixture
def config(path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.setenv("NOTEBOOK_ACCEL_CONFIG_FILE", str(path))

    def run(*words: str, answers: str | None = None, found: Hardware = NO_GPU) -> Result:
        monkeypatch.setattr(hardware, "detect", lambda *_: found)
        return CliRunner().invoke(command, words, input=answers)

    return run


def saved(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    assert found.pop("schema_version") == 1
    return found


def refused(result: Result) -> str:
    assert isinstance(result.exception, ConfigurationError), result.output
    return str(result.exception)


ON_CPU = {"distributed_type": "MULTI_CPU", "use_cpu": True, "mixed_precision": "no", "num_processes": 4}


@pytest.mark.parametrize(
    ("found", "words", "expected"),
    [
        (NO_GPU, [], ON_CPU),
        (NO_GPU, ["--num_processes", "2"], {**ON_CPU, "num_processes": 2}),
        (NO_GPU, ["--mixed-precision", "bf16"], {**ON_CPU, "mixed_precision": "bf16"}),
        (with_gpus(1), [], {"distributed_type": "NO", "device": "cuda", "mixed_precision": "no", "num_processes": 1}),
        (with_gpus(4), [], {"distributed_type": "MULTI_GPU", "mixed_precision": "no", "num_processes": 4}),
        (
            with_gpus(4),
            ["--gpu_ids", "0,2", "--distributed_type", "FSDP"],
            {"distributed_type": "FSDP", "mixed_precision": "no", "gpu_ids": "0,2"},
        ),
    ],
)  # fmt: skip
def test_nothing_is_asked_with_yes(
    config: Callable[..., Result], path: Path, found: Hardware, words: list[str], expected: dict[str, Any]
) -> None:
    result = config("--yes", *words, found=found)
    assert result.exit_code == 0, result.exception
    assert saved(path) == expected
    assert f"saved in {path}" in result.output
    assert "a launch now: " in result.output
    assert "next: notebook-accel launch train.py" in result.output


def test_only_what_matters_for_the_hardware_is_asked(config: Callable[..., Result], path: Path) -> None:
    result = config(answers="1\n3\nbf16\n")
    assert result.output.count("]: ") == 3
    assert "GPU" not in result.output.split("\n", 1)[1]
    assert saved(path)["num_processes"] == 3
    assert saved(path)["mixed_precision"] == "bf16"


def test_gpus_bring_questions_of_their_own(config: Callable[..., Result], path: Path) -> None:
    result = config(answers="1\n1,3\n\nFSDP\nfp16\n", found=with_gpus(4))
    assert result.exit_code == 0, result.output
    assert saved(path) == {
        "distributed_type": "FSDP",
        "gpu_ids": "1,3",
        "mixed_precision": "fp16",
        "num_machines": 1,
        "num_processes": 2,
    }


def test_what_is_no_longer_sharded_loses_what_said_how(config: Callable[..., Result], path: Path) -> None:
    config("set", "distributed_type=FSDP", "num_processes=2", "fsdp_offload_params=true")
    assert yaml.safe_load(path.read_text())["fsdp_config"] == {"fsdp_offload_params": True}
    config("set", "distributed_type=MULTI_GPU")
    assert saved(path) == {"distributed_type": "MULTI_GPU", "num_processes": 2}


def test_a_choice_of_ranks_is_offered_again(config: Callable[..., Result], path: Path) -> None:
    config("--yes", "--num_processes", "2", found=with_gpus(4))
    assert "Ranks [2]" in config(answers="\n" * 5, found=with_gpus(4)).output
    assert "Ranks [3]" in config(answers="\n0,1,2\n\n\n\n", found=with_gpus(4)).output
    assert saved(path)["gpu_ids"] == "0,1,2"


def test_machines_bring_questions_of_their_own(config: Callable[..., Result], path: Path) -> None:
    assert config(answers="2\n2\n1\n\n10.0.0.1\n29501\n8\n\n").exit_code == 0
    assert saved(path) == {
        **ON_CPU,
        "num_machines": 2,
        "machine_rank": 1,
        "main_process_ip": "10.0.0.1",
        "main_process_port": 29501,
        "num_processes": 8,
    }


def test_a_cluster_has_its_ranks_counted_on_all_machines(config: Callable[..., Result], path: Path) -> None:
    """It is not asked for, nor what a cluster sees to by itself."""
    asked = config("--cluster", "ray://10.0.0.1:10001", answers="2\n8\n\n")
    assert "8 ranks on 2 machines of the cluster ray://10.0.0.1:10001" in asked.output, "it is not called"
    assert config("set", "num_processes=6", "insecure=true").exit_code == 0
    expected = {"cluster": "ray://10.0.0.1:10001", "insecure": True, "num_machines": 2, "num_processes": 6}
    assert saved(path) == {**ON_CPU, **expected}
    shown = config("show").output
    assert "6 ranks on 2 machines of the cluster" in shown


def test_what_an_option_says_is_not_asked(config: Callable[..., Result], path: Path) -> None:
    result = config("--num_processes", "2", "--num_machines", "1", answers="bf16\n")
    assert result.output.count("]: ") == 1
    assert saved(path)["num_processes"] == 2


def test_an_answer_that_cannot_work_is_asked_again(config: Callable[..., Result], path: Path) -> None:
    result = config(answers="1\nmany\n2\nfp64\nbf16\n")
    assert "error: num_processes must be a whole number, not 'many'" in result.output
    assert "mixed_precision='fp64' is unknown" in result.output
    assert saved(path)["num_processes"] == 2


def test_what_is_saved_is_offered_the_next_time(config: Callable[..., Result], path: Path) -> None:
    config("--yes", "--num_processes", "3", "--mixed_precision", "bf16")
    before = saved(path)
    assert "[3]" in config(answers="\n\n\n").output
    assert saved(path) == {**before, "num_machines": 1}


def test_without_a_terminal_it_says_how_to_do_without(path: Path) -> None:
    command = [sys.executable, "-m", "notebook_accel", "config"]
    environment = {**os.environ, "NOTEBOOK_ACCEL_CONFIG_FILE": str(path)}
    ended = subprocess.run(command, input="1\n2\n", env=environment, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "add --yes" in ended.stderr
    assert not path.exists()


def test_settings_are_changed_one_by_one(config: Callable[..., Result], path: Path) -> None:
    config("--yes")
    assert config("set", "num_processes=1", "mixed_precision=bf16").exit_code == 0
    assert saved(path) == {"distributed_type": "NO", "use_cpu": True, "mixed_precision": "bf16", "num_processes": 1}
    assert config("set", "use_cpu=", "num_processes=2").exit_code == 0
    assert saved(path) == {"mixed_precision": "bf16", "num_processes": 2}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["set", "num_process=2"], "num_process is not a setting; did you mean num_processes?"),
        (["set", "num_processes"], "must be written as KEY=VALUE"),
        (["set", "num_processes=0"], "num_processes=0: it must be at least 1"),
        (["set", "gpu_ids="], "gpu_ids is not set"),
        (["set", "gpu_id="], "did you mean gpu_ids?"),
        (["set", "mixed_precision=fp16"], "mixed_precision='fp16'"),
        (["set", "distributed_type=FSDP", "fsdp_forward_prefetch=true"], "would have no effect"),
        (["set", "fsdp_version=1"], "models are sharded by FSDP2"),
        (["--yes", "--distributed_type", "NO", "--num_processes", "2"], "num_processes contradicts distributed_type"),
        (["--yes", "show"], "--yes does not go with config show"),
        (["--debug", "true", "show"], "--debug does not go with config show"),
        (["default"], "replace it with config default --yes"),
        (["show", "--config_file", "/nowhere/config.yaml"], "there is no such file"),
        (["update", "--config_file", "/nowhere/config.yaml"], "create it with notebook-accel config"),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused_and_changes_nothing(
    config: Callable[..., Result], path: Path, words: list[str], message: str
) -> None:
    config("--yes")
    before = path.read_text()
    assert message in refused(config(*words))
    assert path.read_text() == before


def test_the_default_is_what_fits_the_hardware(config: Callable[..., Result], path: Path) -> None:
    assert config("default", "--mixed_precision", "bf16", found=with_gpus(2)).exit_code == 0
    assert saved(path) == {"distributed_type": "MULTI_GPU", "mixed_precision": "bf16", "num_processes": 2}
    assert config("default", "--yes").exit_code == 0
    assert saved(path) == ON_CPU


def test_a_file_of_the_peer_is_brought_up_to_date(config: Callable[..., Result], path: Path) -> None:
    path.write_text("compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_CPU\nnum_processes: 2\ntpu_env: []\n")
    assert config("update").exit_code == 0
    assert saved(path) == {"distributed_type": "MULTI_CPU", "num_processes": 2, "use_cpu": True}


def test_a_file_for_the_first_fsdp_is_brought_up_to_date_too(config: Callable[..., Result], path: Path) -> None:
    path.write_text(
        "distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {fsdp_version: 1, fsdp_offload_params: true}\n"
    )
    assert "for FSDP1" in config("show").output
    assert config("update").exit_code == 0
    assert "for FSDP1" not in config("show").output
    assert saved(path)["fsdp_config"] == {"fsdp_offload_params": True}


def test_each_value_is_shown_with_its_source(
    config: Callable[..., Result], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text("num_processes: 2\nenv: {TOKEN: secret}\n")
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    shown = config("show").output
    rows = {line.split()[0]: line.split(None, 2)[1:] for line in shown.splitlines() if "  " in line}
    assert str(path) in shown
    assert rows["num_processes"] == ["2", "num_processes in the file"]
    assert rows["mixed_precision"] == ["bf16", "ACCELERATE_MIXED_PRECISION"]
    assert rows["gpu_ids"] == ["all", "default"]
    assert rows["env"] == ["TOKEN", "env in the file"]
    assert "secret" not in shown


def test_what_this_machine_lacks_is_told_but_saved(config: Callable[..., Result], path: Path) -> None:
    result = config("--yes", "--gpu_ids", "0,1")
    assert "a launch on this machine would be refused: GPUs were requested" in result.output
    assert saved(path)["gpu_ids"] == "0,1"


def test_an_interrupt_leaves_nothing(path: Path) -> None:
    environ = {**os.environ, "NOTEBOOK_ACCEL_CONFIG_FILE": str(path)}
    program = [sys.executable, "-m", "notebook_accel", "config"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    # Whoever runs the tests in the background of a shell has them ignore interrupts, and that is inherited.
    heed = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(program, env=environ, preexec_fn=heed, **pipes) as asked:
        assert asked.stdout is not None
        seen = b""
        while b"]: " not in seen:
            seen += asked.stdout.read1()
        # Before it waits for the answer, Python's `input` clears an interrupt: while it flushes the prompt.
        wait_until(lambda: psutil.Process(asked.pid).status() == psutil.STATUS_SLEEPING)
        asked.send_signal(signal.SIGINT)
        asked.wait(20)  # while its input is open, whose end would end it too
        rest, said = asked.communicate()
    assert (asked.returncode, rest, said) == (130, b"\n", b"interrupted\n")  # on a line of its own
    assert os.listdir(path.parent) == []
