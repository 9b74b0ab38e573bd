"""The command line as a whole."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from notebook_accel import __version__
from notebook_accel.cli import main as command_line
from notebook_accel.cli.main import COMMANDS, main
from notebook_accel.errors import ConfigurationError
from notebook_accel.train.checkpoints import manifest
from notebook_accel.train.checkpoints.manifest import Place

PROGRAM = Path(sys.executable).parent / "notebook-accel"


def test_help_imports_nothing_that_takes_long() -> None:
    code = (
        "import sys\nfrom notebook_accel.cli.main import main\n"
        "main.main(['--help'], standalone_mode=False)\n"
        "found = {'torch', 'numpy', 'rich', 'yaml', 'psutil', 'IPython'} & set(sys.modules)\n"
        "assert not found, found\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_the_list_has_every_command_with_its_line() -> None:
    page = CliRunner().invoke(main, ["--help"]).output
    assert re.findall(r"^  ([a-z-]+)  ", page.split("Commands:")[1], re.MULTILINE) == list(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_page_that_begins_as_the_list_says(name: str) -> None:
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 0
    assert result.output.startswith(f"Usage: main {name} ")


def test_a_command_that_is_misspelt_names_the_nearest() -> None:
    result = CliRunner().invoke(main, ["lanch", "train.py"])
    assert result.exit_code == 2
    assert "did you mean launch?" in result.output


def test_both_names_of_the_program_tell_the_version() -> None:
    for program in ([str(PROGRAM)], [sys.executable, "-m", "notebook_accel"]):
        done = subprocess.run([*program, "--version"], capture_output=True, text=True, check=True)
        assert done.stdout == f"notebook-accel {__version__}\n"


def test_the_shell_can_complete_commands_and_options() -> None:
    def completed(words: str) -> list[str]:
        environ = {**os.environ, "_NOTEBOOK_ACCEL_COMPLETE": "bash_complete", "COMP_WORDS": words}
        environ["COMP_CWORD"] = str(len(words.split()) - 1)
        done = subprocess.run([str(PROGRAM)], env=environ, capture_output=True, text=True, check=True)
        return [line.partition(",")[2] for line in done.stdout.splitlines()]

    assert completed("notebook-accel la") == ["launch", "lab"]
    assert "--num_processes" in completed("notebook-accel launch --num_p")
    assert completed("notebook-accel launch --mixed_precision b") == ["bf16"]


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (ConfigurationError("not so"), 2, "error: not so\n"),
        (click.UsageError("not so"), 2, "error: not so\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (click.Abort(), 130, "interrupted\n"),
    ],
)
def test_an_exit_code_tells_what_went_wrong(
    raised: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr(command_line.main, "main", fail)
    with pytest.raises(SystemExit) as ended:
        command_line.run()
    assert ended.value.code == code
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("command", ["jobs", "launch"])
def test_an_interrupt_of_the_imports_is_told_without_a_traceback(command: str) -> None:
    code = """if True:
        import sys
        class Interrupted:
            def find_spec(self, name, *_):
                if name == "click":
                    raise KeyboardInterrupt
        sys.meta_path.insert(0, Interrupted())
        from notebook_accel.cli.entry import run
        run()
        """
    done = subprocess.run([sys.executable, "-c", code, command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_a_mistyped_command_is_told_below_its_usage() -> None:
    done = subprocess.run([str(PROGRAM), "jobs", "--last", "x"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    usage, _, said = done.stderr.partition("\n\n")
    assert usage == "Usage: notebook-accel jobs [OPTIONS]\nTry 'notebook-accel jobs --help' for help."
    assert said == "error: --last must be a whole number of at least 1, not 'x'\n"


def test_a_number_that_is_too_small_is_told_like_one_that_is_none() -> None:
    result = CliRunner().invoke(main, ["log", "--rank", "-1", "4bfa79"])
    assert result.exit_code == 2
    assert "--rank must be a whole number of at least 0, not '-1'" in result.output


def test_a_damaged_checkpoint_is_an_exit_code_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest.write(tmp_path, Place(epoch=0, step=1, ranks=1))
    for content, code in (("", 0), ("{}", 1)):
        (tmp_path / manifest.NAME).write_text(content or (tmp_path / manifest.NAME).read_text())
        monkeypatch.setattr(sys, "argv", ["notebook-accel", "checkpoints", "verify", str(tmp_path)])
        with pytest.raises(SystemExit) as ended:
            command_line.run()
        assert ended.value.code == code


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_on_a_full_disk_is_an_error_that_says_so(unbuffered: str) -> None:
    environ = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [str(PROGRAM), "--help"], stdout=full, stderr=subprocess.PIPE, env=environ, text=True, check=False
        )
    assert done.returncode == 2
    assert done.stderr.startswith("error: the output can't be written: No space left on device. Make room on its disk")
    assert len(done.stderr.splitlines()) == 1


def test_a_reader_who_has_enough_is_told_nothing() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([str(PROGRAM), "--help"], stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_report_has_what_matters_and_no_secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = tmp_path / "config.yaml"
    settings.write_text("num_processes: 3\nenv: {TOKEN: secret}\n")
    monkeypatch.setenv("NOTEBOOK_ACCEL_CONFIG_FILE", str(settings))
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    for name in ("NOTEBOOK_ACCEL_TOKEN", "ACCELERATE_API_KEY", "COLAB_JUPYTER_PASSWORD", "TORCH_auth", "NCCL_PAT"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("CUDA_PROXY", "http://me:secret@proxy:3128")
    result = CliRunner().invoke(main, ["env", "--json"])
    report = json.loads(result.output)
    assert report["notebook-accel"]["version"] == __version__
    assert report["environment"]["NCCL_DEBUG"] == "INFO"
    assert report["environment"]["ACCELERATE_API_KEY"] == "(not shown: it may be private)"
    assert report["settings"]["num_processes"] == 3
    assert {"torch", "packages", "front ends", "hardware", "system"} <= set(report)
    assert "secret" not in result.output
    text = CliRunner().invoke(main, ["env"]).output
    assert "\n  NCCL_DEBUG: INFO\n" in text


def test_a_report_has_no_passwords_of_the_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = tmp_path / "config.yaml"
    monkeypatch.setenv("NOTEBOOK_ACCEL_CONFIG_FILE", str(settings))
    settings.write_text("num_machines: 2\nmain_process_ip: me:s3cret@10.0.0.1\n")
    shown = CliRunner().invoke(main, ["env"]).output
    assert "num_machines: 2" in shown
    settings.write_text("num_machines: me:s3cret@10.0.0.1\n")
    broken = CliRunner().invoke(main, ["env"]).output
    assert "me:…@10.0.0.1" in broken
    assert "s3cret" not in shown + broken


def test_a_report_is_made_of_a_broken_file_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = tmp_path / "config.yaml"
    settings.write_text("num_proceses: 3\n")
    monkeypatch.setenv("NOTEBOOK_ACCEL_CONFIG_FILE", str(settings))
    report = json.loads(CliRunner().invoke(main, ["env", "--json"]).output)
    assert "num_processes" in report["settings"]["error"]
