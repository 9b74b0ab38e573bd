"""What agents read is enough: a client that knows nothing else starts a training run, and mends it.

It takes its commands from the code blocks of the skill, and puts in what it wants to run. The function that it is asked
to train, a file of its user's, has two faults, and needs a file that isn't there.
"""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import blocks
from tests.documents.test_blocks import ROOT

GENERATE = runpy.run_path(str(ROOT / "scripts" / "generate.py"))
SKILL: Path = GENERATE["SKILL"]
TRAINING = """
import threading
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

from notebook_accel import Accelerator, report


def train(size, is_stuck):
    accelerator = Accelerator()
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    loader = DataLoader(TensorDataset(torch.randn(1024, 4), torch.zeros(1024, 1)), batch_size=32)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in accelerator.epochs(3):
        if epoch == 1:
            if is_stuck and accelerator.process_index == 1:
                threading.Event().wait()
            activations = torch.empty(size)
        if epoch == 2:
            weight = float(Path("weight.txt").read_text())
        for inputs, targets in loader:
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            report(loss=loss)
"""
STEPS = 3 * 1024 // 32 // 2
"""Of the whole training, on two ranks."""


class Client:
    """Knows only the text."""

    def __init__(self, skill: Path, folder: Path) -> None:
        self._folder = folder
        self._text = skill.read_text()
        self._blocks = list(blocks.read(skill))
        self.job = ""
        found = re.search(r"`(NOTEBOOK_ACCEL_STALL_AFTER)=(\d+)`", self._text)
        assert found
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        state = {"NOTEBOOK_ACCEL_STATE": str(folder / "state"), found[1]: found[2]}
        self._environment = {**os.environ, "PATH": path, **state}

    def start(self, arguments: str) -> None:
        """Launches the function with these arguments, as the block that launches one does."""
        [code] = [block.code for block in self._blocks if block.kind == "python" and "detach=True" in block.code]
        code, count = re.subn(r"notebook_launcher\(train, \(.*?\),", f"notebook_launcher(train, ({arguments}),", code)
        assert count == 1
        (self._folder / "start.py").write_text(code)
        assert "run `python start.py`" in self._text
        self.job = self._bash("python start.py").stdout.split()[-1]

    def look_up(self) -> None:
        """Takes the last job for its own, as the block of commands does."""
        [line] = [line for line in self._lines() if line.startswith("job=$(")]
        self.job = self._bash(f"{line}\necho $job").stdout.strip()

    def run(self, command: str, *, until: bool = False) -> tuple[int, str]:
        """Runs one of the commands of the text, and returns the exit code and what it printed."""
        [line] = [line for line in self._lines() if line.startswith(f"notebook-accel {command} $job")]
        done = self._bash(f"job={self.job}\n" + (line if until else re.sub(r"--until '[^']*'", "", line)))
        return done.returncode, done.stdout

    def wait(self, *, until: bool = False) -> tuple[int, str]:
        """Waits on while the job is stalled: on a busy machine, ranks that import may look so."""
        code = 3
        while code == 3:
            code, text = self.run("wait", until=until)
        return code, text

    def next_step(self, kind: str) -> str:
        """What the text says is to be done about a finding."""
        [found] = re.findall(rf"^\| [^|]*`{kind}`[^|]* \| ([^|]*) \|$", self._text, re.MULTILINE)
        return str(found)

    def _lines(self) -> list[str]:
        return [line for block in self._blocks if block.kind == "bash" for line in block.code.splitlines()]

    def _bash(self, script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", script],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )


def kind(explained: str) -> str:
    """What `explain` finds first."""
    return explained.split("\n\n")[1].partition(":")[0]


@pytest.mark.timeout(600)
def test_a_client_that_knows_only_the_skill_trains_and_mends(tmp_path: Path) -> None:
    """Takes long on a busy machine: it launches four jobs, and each command is a process."""
    (tmp_path / "training.py").write_text(TRAINING)
    client = Client(SKILL, tmp_path)

    client.start("64, True")
    code, text = client.wait(until=True)
    assert code == 0, text
    while "threading.Event().wait()" not in text:
        code, text = client.run("wait")
        assert code == 3, text
        _, text = client.run("explain")
    assert kind(text) == "stalled"
    assert re.search(r"rank 1 is in .* at training\.py line \d+", text), text
    assert "Stop the job" in client.next_step("stalled")
    assert client.run("stop")[0] == 0
    assert client.wait()[0] == 1

    client.start("2**60, False")
    assert client.wait()[0] == 1
    _, text = client.run("explain")
    assert kind(text) == "out of memory"
    assert "activations = torch.empty(size)" in text
    assert "smaller batch" in client.next_step("out of memory")

    client.start("64, False")
    assert client.wait()[0] == 1
    _, text = client.run("explain")
    assert kind(text) == "failed"
    assert "No such file or directory: 'weight.txt'" in text
    assert "read the traceback" in client.next_step("failed")
    assert f"notebook-accel resume {client.job}" in text
    (tmp_path / "weight.txt").write_text("1.0")
    failed = client.job
    code, text = client.run("resume")
    assert code == 0, text
    client.look_up()
    assert client.job != failed
    code, text = client.wait()
    assert code == 0, text
    found = re.search(r"done.*last at report (\d+)", client.run("job")[1], re.DOTALL)
    assert found
    assert int(found[1]) < STEPS // 2, "it trained again what was done"


def test_what_agents_read_is_made_of_the_pages() -> None:
    for path, text in GENERATE["for_agents"]().items():
        assert path.read_text(encoding="utf-8") == text, "run scripts/generate"


def test_the_skill_has_the_head_that_agents_look_for_and_no_link_that_leads_nowhere() -> None:
    head, name, description, *_ = SKILL.read_text().splitlines()
    assert (head, name) == ("---", f"name: {SKILL.parent.name}")
    assert description.startswith("description:")
    assert not re.search(r"\]\((?!https?:)", SKILL.read_text())


def test_the_list_of_pages_names_each_of_them() -> None:
    text = (ROOT / "docs/llms.txt").read_text()
    listed = re.findall(r"^- \[[^\]]+\]\(([^)]+)\)", text, re.MULTILINE)
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert set(listed) == pages - {"index.md"}
