"""`%accelerate` in a kernel: what it sets holds for launches, their ranks and the command line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live_notebook import CELL_TIMEOUT, Notebook, wait_until

LOOK = """
def look():
    accelerator = Accelerator()
    where = accelerator.num_processes, accelerator.device.type
    how = accelerator.mixed_precision, accelerator.gradient_accumulation_steps, accelerator.distributed_type.value
    return *where, *how, os.environ.get("COLOR")
"""


@pytest.fixture
def settings(notebook: Notebook, tmp_path: Path) -> Iterator[Path]:
    """The file that the shared kernel reads and saves for one test, and nothing set in its notebook."""
    path = tmp_path / "config.yaml"
    path.write_text("")
    notebook.check(f"%env NOTEBOOK_ACCEL_CONFIG_FILE={path}")
    yield path
    path.write_text("")
    notebook.check("%accelerate --reset\ndel os.environ['NOTEBOOK_ACCEL_CONFIG_FILE']")


def complete(notebook: Notebook, code: str) -> list[str]:
    """What Tab offers at the end of a cell, as whole words."""
    content = answer(notebook, notebook.client.complete(code, len(code)))
    start = len(code[: content["cursor_start"]].rsplit(" ", 1)[-1])
    before = code[content["cursor_start"] - start : content["cursor_start"]]
    return [before + match for match in content["matches"]]


def answer(notebook: Notebook, message: str) -> dict[str, Any]:
    while True:
        reply = notebook.client.get_shell_msg(timeout=CELL_TIMEOUT)
        if reply["parent_header"].get("msg_id") == message:
            content: dict[str, Any] = reply["content"]
            return content


@pytest.mark.usefixtures("settings")
@pytest.mark.versions
def test_what_it_sets_holds_for_launches_and_the_accelerators_on_their_ranks(notebook: Notebook) -> None:
    notebook.check(LOOK)
    how = "--mixed-precision bf16 --gradient-accumulation 4 --strategy fsdp"
    said = notebook.check(f"%accelerate -n 2 --device cpu {how} --env COLOR=red")
    assert said.stdout.startswith("a launch now: 2 ranks on CPU")
    assert notebook.value("notebook_launcher(look)") == [(2, "cpu", "bf16", 4, "FSDP", "red")] * 2
    assert notebook.value("notebook_launcher(look, num_processes=1, mixed_precision='no', env={'COLOR': 'blue'})") == [
        (1, "cpu", "no", 4, "FSDP", "blue")
    ]
    assert notebook.value("debug_launcher(look)")[0][:3] == (2, "cpu", "no")
    notebook.check("%accelerate --reset --num_processes=1")
    assert notebook.value("notebook_launcher(look)") == [(1, "cpu", "no", 1, "NO", None)]


@pytest.mark.usefixtures("settings")
def test_debug_mode_is_an_option_without_a_value(notebook: Notebook) -> None:
    notebook.check("import os\n%accelerate --debug -n 2 --device cpu")
    assert notebook.value("notebook_launcher(lambda: os.environ['ACCELERATE_DEBUG_MODE'])") == ["true"] * 2


@pytest.mark.parametrize(
    ("words", "error", "reason"),
    [
        ("--mixed-precision fp16 --device cpu", "ConfigurationError", "needs a GPU"),
        ("--gpus 0,2 --device cpu", "ConfigurationError", "contradicts device='cpu'"),
        (
            "--nodes 2 --device cpu",
            "ConfigurationError",
            "(from %accelerate --nodes) needs the machines: add --cluster",
        ),
        ("-n two", "ConfigurationError", "must be a whole number, not 'two'"),
        (
            "-n 1000000 --device cpu",
            "ConfigurationError",
            "1000000 ranks (from %accelerate --num-processes) are more than",
        ),
        ("--mixed bf16", "ConfigurationError", "did you mean --mixed-precision?"),
        ("--env COLOR", "ConfigurationError", "--env NAME=VALUE"),
        ("-n 1 stop", "ConfigurationError", "%accelerate stop takes no options of %accelerate itself"),
        ("stauts", "ConfigurationError", "did you mean status?"),
        ("--gpus 98,99", "HardwareError", "GPU"),
        ("--save", "ConfigurationError", "this notebook has no settings to save"),
    ],
)
def test_what_cannot_work_is_refused_at_once_and_changes_nothing(
    notebook: Notebook, settings: Path, words: str, error: str, reason: str
) -> None:
    cell = notebook.run(f"%accelerate {words}")
    assert (cell.error, reason in cell.error_text) == (error, True), cell
    assert cell.traceback == f"{error}: {cell.error_text}"
    assert notebook.value("from notebook_accel.config import resolve\nresolve.magic_layer().values") == {}
    assert settings.read_text() == ""


@pytest.mark.versions
def test_it_shows_devices_settings_with_their_sources_and_what_a_launch_would_do(
    notebook: Notebook, settings: Path
) -> None:
    settings.write_text("num_processes: 3\nuse_cpu: true\n")
    notebook.check("os.environ['ACCELERATE_GRADIENT_ACCUMULATION_STEPS'] = '2'")
    notebook.check("%accelerate --mixed-precision bf16 --env TOKEN=secret")
    shown = notebook.check("%accelerate\ndel os.environ['ACCELERATE_GRADIENT_ACCUMULATION_STEPS']").bundles[0]
    rows = {line.split()[0]: line.split(None, 2)[1:] for line in shown["text/plain"].splitlines() if "  " in line}
    assert rows["CPU,"][-1].endswith("B")
    assert rows["num_processes"] == ["3", f"num_processes in {settings}"]
    assert rows["device"] == ["cpu", f"use_cpu in {settings}"]
    assert rows["mixed_precision"] == ["bf16", "%accelerate --mixed-precision"]
    assert rows["gradient_accumulation_steps"] == ["2", "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"]
    assert rows["strategy"] == ["ddp", "default"]
    assert "a launch now: 3 ranks on CPU" in shown["text/plain"]
    assert "secret" not in shown["text/plain"] + shown["text/html"]
    assert "<table" in shown["text/html"]
    assert f"num_processes in {settings}" in shown["text/html"]


def test_what_is_saved_holds_for_the_command_line_and_other_notebooks(notebook: Notebook, settings: Path) -> None:
    assert f"saved in {settings}" in notebook.check("%accelerate -n 1 --mixed-precision bf16 --save").stdout
    notebook.check("%accelerate --reset")
    assert notebook.value("notebook_launcher(lambda: Accelerator().mixed_precision)") == ["bf16"]
    command = [sys.executable, "-m", "notebook_accel", "config", "show", "--config_file", str(settings)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "mixed_precision              bf16" in told
    assert "a launch now: 1 rank" in told


def test_a_file_that_cannot_work_fails_the_launch_and_says_so(notebook: Notebook, settings: Path) -> None:
    settings.write_text("num_proceses: 2\n")
    cell = notebook.run("notebook_launcher(int)")
    assert cell.error == "ConfigurationError"
    assert cell.error_text == f"{settings}: num_proceses is not a setting; did you mean num_processes?"


@pytest.mark.usefixtures("settings")
@pytest.mark.versions
def test_jobs_that_run_are_shown_and_attached_to(notebook: Notebook, tmp_path: Path) -> None:
    notebook.check(f"""
    def wait():
        print("ready", flush=True)
        wait_for("{tmp_path}/done")
        return "waited"
    """)
    notebook.read_until(notebook.check("job = notebook_launcher(wait, num_processes=2, block=False)"), "ready")
    name = notebook.value("job.id")
    # It is not recorded from its very first moment.
    wait_until(lambda: f"%accelerate attach {name}" in notebook.check("%accelerate").displays[0])
    assert f"{name}  " in str(notebook.check("%accelerate jobs").value)
    assert name in complete(notebook, "%accelerate attach ")
    (tmp_path / "done").touch()
    assert notebook.value(f"again = %accelerate attach {name}\nagain is job, again.result(60)") == (
        True,
        ["waited"] * 2,
    )
    assert f"attach {name}" not in notebook.check("%accelerate").displays[0]


COMPLETED = {
    "%accelerate --dev": ["--device"],
    "%accelerate --mixed_prec": ["--mixed-precision"],
    "%accelerate -n 2 --device c": ["cpu", "cuda"],
    "x = 1\n  %accelerate --strategy ": ["ddp", "fsdp", "spmd"],
    "%accelerate --mixed-precision=f": ["--mixed-precision=fp16", "--mixed-precision=fp8"],
    "%accelerate sta": ["status", "stacks"],
    "%accelerate --sav": ["--save"],
}


@pytest.mark.parametrize("jedi", [True, False])
@pytest.mark.versions
def test_tab_completes_options_and_their_values(notebook: Notebook, jedi: bool) -> None:
    notebook.check(f"%config IPCompleter.use_jedi = {jedi}")
    assert {code: complete(notebook, code) for code in COMPLETED} == COMPLETED
    assert "--save" not in complete(notebook, "%accelerate --save --sav")


@pytest.mark.versions
def test_the_help_page_has_every_option_and_subcommand(notebook: Notebook) -> None:
    message = notebook.client.execute("%accelerate?")
    page = answer(notebook, message)["payload"][0]["data"]["text/plain"]
    for word in ("--num-processes", "--gradient-accumulation", "--env NAME=VALUE", "--save", "--reset", "status"):
        assert word in page


@pytest.mark.versions
def test_it_goes_with_the_extension_and_comes_back(notebook: Notebook) -> None:
    notebook.check("%load_ext notebook_accel")
    notebook.check("%unload_ext notebook_accel")
    assert "not found" in notebook.check("%accelerate").stderr
    assert "--device" not in complete(notebook, "%accelerate --dev")
    notebook.check("%load_ext notebook_accel")
    assert "a launch now" in notebook.check("%accelerate -n 1").stdout
    notebook.check("%accelerate --reset")
