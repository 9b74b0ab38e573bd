"""Uses every interface of the setting `color`, which `test_adding_a_setting.py` has added, and prints what it found."""

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from click.shell_completion import ShellComplete
from click.testing import CliRunner
from IPython.core.interactiveshell import InteractiveShell

from notebook_accel import notebook_launcher
from notebook_accel.cli.launch import start
from notebook_accel.cli.main import main
from notebook_accel.config import file
from notebook_accel.config.resolve import base_layers, resolve
from notebook_accel.errors import ConfigurationError
from notebook_accel.hardware import detect
from notebook_accel.notebook.magics import accelerate, status

FILE = Path(os.environ["NOTEBOOK_ACCEL_CONFIG_FILE"])
SHELL = InteractiveShell.instance()


def given_to_ranks() -> str | None:
    return os.environ.get("ACCELERATE_COLOR")


def argument(value: str) -> Any:
    return notebook_launcher(given_to_ranks, num_processes=1, device="cpu", color=value, in_process=True)  # type: ignore[call-arg]


def resolved() -> list[str]:
    config = resolve()
    return [config.color, str(config.sources["color"])]  # type: ignore[attr-defined]


def variable(value: str, name: str = "NOTEBOOK_ACCEL_COLOR") -> Any:
    with patch.dict(os.environ, {name: value}):
        return resolved()


def key(value: str) -> Any:
    FILE.write_text(f"color: {value}\n")
    return resolved()


def magic(value: str) -> Any:
    accelerate.run(SHELL, f"--color {value} --save")
    shown = [row for row in status.collect().settings if row[0] == "color"]
    accelerate.run(SHELL, "--reset")
    return [*shown, file.read(FILE)]


def config(value: str) -> Any:
    def run(*words: str) -> str:
        return CliRunner().invoke(main, ["config", *words], catch_exceptions=False).output

    run("--yes", "--num_processes", "1", "--color", value)
    rows = [line.split(None, 2)[1:] for line in run("show").splitlines() if line.startswith("color")]
    run("set", "color=")
    return [*rows, run("show").count("color")]


def launch(value: str) -> Any:
    made = start.make("true", [], {"no_python": True, "color": value}, base_layers(os.environ), detect(), {})
    return made.environment["ACCELERATE_COLOR"]


def pages() -> list[bool]:
    texts = [CliRunner().invoke(main, [name, "--help"]).output for name in ("config", "launch")]
    return [
        "--color" in text and "The color of the ranks." in text for text in (*texts, accelerate.page("%accelerate"))
    ]


def completions() -> list[list[str]]:
    shown = [
        accelerate.complete("%accelerate", SHELL, words, start) for words, start in (([], "--col"), (["--color"], "r"))
    ]
    for name in ("config", "launch"):
        found = ShellComplete(main, {}, "notebook-accel", "").get_completions([name, "--color"], "r")
        shown.append([each.value for each in found])
    return shown


def attempt(interface: Callable[[str], Any], value: str) -> Any:
    FILE.write_text("")
    try:
        return interface(value)
    except ConfigurationError as error:
        return str(error)


if __name__ == "__main__":
    interfaces = (argument, variable, partial(variable, name="ACCELERATE_COLOR"), key, magic, config, launch)
    found = [[attempt(each, value) for value in ("red", "blue")] for each in interfaces]
    FILE.write_text("")
    print("\n" + json.dumps({"interfaces": found, "pages": pages(), "completions": completions()}))
