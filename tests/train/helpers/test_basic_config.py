from pathlib import Path

import pytest
import yaml

from notebook_accel import hardware
from notebook_accel.config import file
from notebook_accel.errors import ConfigurationError
from notebook_accel.train.helpers.basic_config import write_basic_config


def test_a_file_is_written_for_this_machine_and_then_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "folder" / "config.yaml"
    assert write_basic_config("BF16", str(path)) == path
    written = yaml.safe_load(path.read_text())
    assert written["mixed_precision"] == "bf16"
    assert written["num_processes"] == max(1, len(hardware.detect().gpus))
    assert file.from_file({}, path).values["mixed_precision"] == "bf16"
    assert write_basic_config("no", path) is False
    assert "exists, and stays as it is" in capsys.readouterr().out
    assert yaml.safe_load(path.read_text()) == written


def test_it_is_the_file_that_launches_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTEBOOK_ACCEL_CONFIG_FILE", str(tmp_path / "mine.yaml"))
    assert write_basic_config() == tmp_path / "mine.yaml"


def test_a_precision_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="mixed_precision='fp64' must be one of no, fp16, bf16, fp8"):
        write_basic_config("fp64", tmp_path / "config.yaml")
