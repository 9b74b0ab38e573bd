"""Measuring a script with several numbers of ranks, and comparing the jobs that this leaves on the disk."""

import inspect
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from notebook_accel import jobs
from notebook_accel.cli.main import main
from notebook_accel.errors import ConfigurationError, RankError
from tests.live_notebook import without_gloo

TRAIN = """
import sys
import torch
from notebook_accel import Accelerator

if __name__ == "__main__":
    accelerator = Accelerator()
    torch.manual_seed(0)  # all ranks make the same samples, and divide them
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(160, 4)), batch_size=8)
    model = torch.nn.Linear(4, 2)
    model, optimizer, data = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.01), data)
    for step, (inputs,) in enumerate(data):
        accelerator.backward(model(inputs).square().mean())
        optimizer.step()
        optimizer.zero_grad()
        accelerator.log({"step size": float(sys.argv[1])}, step=step)
    print("trained by", accelerator.process_index)
    sys.exit(0)
"""
APART = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
"""Has click before 8.2 keep stdout and stderr apart, as later releases always do."""


def run(*arguments: object) -> str:
    result = CliRunner(**APART).invoke(main, [*map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_script_runs_with_each_number_of_ranks(tmp_path: Path) -> None:
    script, curve = tmp_path / "train.py", tmp_path / "curve.html"
    script.write_text(TRAIN)
    found = json.loads(run("scaling", "--processes", "1,2", "--cpu", "--json", "--output", curve, script, 0.5))
    assert found["unit"] == "samples per second"
    assert [point["ranks"] for point in found["points"]] == [1, 2]
    assert "train.py by the number of ranks" in curve.read_text()
    two, one = jobs()[:2]
    assert (one.name, one.ranks, two.ranks) == ("train.py", 1, 2)
    compared = run("compare", one.id, two.id)
    assert "on 2 ranks instead of 1: " in compared.splitlines()[0]
    assert "step size at step 9" in compared
    lines = {line["name"]: line for line in json.loads(run("compare", one.id, two.id, "--json"))["lines"]}
    assert (lines["ranks"]["first"], lines["ranks"]["second"]) == ("1", "2")
    assert sorted(without_gloo(run("log", two.id)).splitlines()) == ["[0] trained by 0", "[1] trained by 1"]
    assert run("log", two.id, "--rank", 1, "--last", 1) == "trained by 1\n"
    same = CliRunner().invoke(main, ["compare", one.id, one.id])
    assert "give two different jobs" in str(same.exception)


def test_a_script_that_fails_names_its_line(tmp_path: Path) -> None:
    script = tmp_path / "fail.py"
    script.write_text("raise SystemExit('no data')")
    with pytest.raises(RankError, match="no data"):
        run("scaling", "--processes", "1", "--cpu", script)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--processes", "1", "none.py"], "there is no script none.py"),
        (["--processes", "1,1", "{script}"], "give different whole numbers above 0"),
        (["--processes", "1", "lesson.ipynb"], "call scaling\\(\\) with your training function"),
        (["--processes", "1", "--output", "none/curve.html", "{script}"], "there is no folder none"),
    ],
)
def test_what_cannot_be_measured_is_refused_first(arguments: list[str], message: str, script: Path) -> None:
    with pytest.raises(ConfigurationError, match=message):
        run("scaling", *(each.format(script=script) for each in arguments))


def test_numbers_that_are_none_are_a_mistake_in_the_command() -> None:
    result = CliRunner().invoke(main, ["scaling", "--processes", "1;2", "train.py"])
    assert result.exit_code == 2
    assert "write it as in 1,2,4" in result.output
