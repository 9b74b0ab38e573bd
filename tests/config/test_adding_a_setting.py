"""A setting is one row: one that is added to a copy of the package is there in every interface."""

import inspect
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import notebook_accel
from notebook_accel import notebook_launcher
from notebook_accel.config.settings import SETTINGS

ROW = """
    color: Annotated[
        str,
        Setting(
            kind=kinds.choice("red", "green"),
            help="The color of the ranks.",
            argument="color",
            variable="NOTEBOOK_ACCEL_COLOR",
            rank_variable="ACCELERATE_COLOR",
            magic=("--color",),
            key="color",
            config=True,
            launch="Resources",
        ),
    ] = "green"
"""
PARAMETER = "    color: str | None = None,\n"
CHOICES = "='blue' is unknown; choose one of 'red', 'green'"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each interface has in a copy that has the row."""
    folder = tmp_path_factory.mktemp("copy")
    package = folder / "notebook_accel"
    shutil.copytree(Path(notebook_accel.__file__).parent, package)
    for name, before, added in (
        ("config/settings.py", "    notices: tuple", ROW),
        ("launch/driver/launcher.py", "    cluster: str", PARAMETER),
    ):
        text = (package / name).read_text()
        assert text.count(f"\n{before}") == 1
        (package / name).write_text(text.replace(f"\n{before}", f"\n{added.strip(chr(10))}\n{before}"))
    environ = {**os.environ, "PYTHONPATH": str(folder), "NOTEBOOK_ACCEL_CONFIG_FILE": str(folder / "config.yaml")}
    command = [sys.executable, str(Path(__file__).with_name("color.py"))]
    done = subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout.splitlines()[-1]), "path": str(folder / "config.yaml")}


def test_a_setting_goes_in_at_every_door_and_a_wrong_value_names_it(found: dict[str, Any]) -> None:
    assert found["interfaces"] == [
        [["red"], f"color{CHOICES}"],
        [["red", "NOTEBOOK_ACCEL_COLOR"], f"NOTEBOOK_ACCEL_COLOR{CHOICES}"],
        [["red", "ACCELERATE_COLOR"], f"ACCELERATE_COLOR{CHOICES}"],
        [["red", f"color in {found['path']}"], f"{found['path']}: color{CHOICES}"],
        [[["color", "red", "%accelerate --color"], {"color": "red"}], f"--color{CHOICES}"],
        [[["red", "color in the file"], 1], f"color{CHOICES}"],
        ["red", f"--color{CHOICES}"],
    ]


def test_a_setting_is_on_every_help_page(found: dict[str, Any]) -> None:
    assert found["pages"] == [True] * 3


def test_a_setting_and_its_values_are_completed(found: dict[str, Any]) -> None:
    assert found["completions"] == [["--color"], ["red"], ["red"], ["red"]]


def test_arguments_are_parameters_with_the_same_defaults() -> None:
    parameters = dict(inspect.signature(notebook_launcher).parameters)
    for name in ("function", "args", "kwargs", "block", "detach", "in_process", "rules", "rdzv_endpoint"):
        del parameters[name]
    rows = {row.argument: row for row in SETTINGS.values() if row.argument}
    assert parameters.keys() == rows.keys()
    for name, parameter in parameters.items():
        assert str(parameter.default) in ("None", str(rows[name].default)), name
