"""A job in a terminal: how it is drawn, and that a real one shows it."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from notebook_accel.events import Bar, Hello, InputRequested, Metrics, Phase, PhaseChanged, Returned
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.show import console, terminal
from tests import shared_server

SCRIPT = """
from tqdm import tqdm
from notebook_accel import notebook_launcher, report

def train():
    for step in tqdm(range(5), desc="steps"):
        report(loss=1 / (step + 1))
    print("a line that is longer than the terminal is wide: " + "x" * 60)

if __name__ == "__main__":
    notebook_launcher(train, num_processes=2)
    print("after", flush=True)
"""
CHECK_MARK = """
from notebook_accel import notebook_launcher


def train():
    print("done ✓ é")
    return 7


if __name__ == "__main__":
    job = notebook_launcher(train, num_processes=1, device="cpu"HOW)
    print(job.result(30) if hasattr(job, "result") else job)
"""


def running(size: int) -> Job:
    job = Job("train", 0, size)
    job.status = Status.RUNNING
    for rank in range(size):
        job.apply(rank, Hello(pid=1, host="here"))
        job.apply(rank, PhaseChanged(Phase.RUNNING))
        job.apply(rank, Bar(bar=1, description="epoch", n=1 + rank, total=4))
        job.apply(rank, Metrics(values={"loss": 0.5}))
    return job


def drawn(job: Job) -> str:
    console = Console(width=100, height=50, force_terminal=False)
    with console.capture() as capture:
        console.print(terminal.draw(job))
    return capture.get()


def test_each_rank_has_a_row() -> None:
    head, metrics, *rows = drawn(running(2)).splitlines()
    assert head.startswith("train() on 2 ranks: running")
    assert metrics.startswith("loss")
    assert [row.split()[:3] for row in rows] == [["rank", str(rank), "running"] for rank in range(2)]
    assert ["epoch 1/4" in rows[0], "epoch 2/4" in rows[1]] == [True, True]
    assert "━" in rows[0]


def test_a_row_keeps_its_height_whatever_is_in_it() -> None:
    job = running(2)
    job.apply(1, Bar(bar=1, description="a long description " * 5, n=1, total=4, rate=43782.1))
    job.apply(1, Metrics(values={f"a metric with a name {number}": 0.5 for number in range(5)}))
    assert [row[:6] for row in drawn(job).splitlines()[-2:]] == ["rank 0", "rank 1"]


def test_bars_have_the_color_of_their_rank() -> None:
    job = running(2)
    job.apply(1, Bar(bar=1, n=4, total=4))
    job.apply(1, Returned())
    console = Console(width=100, force_terminal=True, color_system="standard", legacy_windows=False)
    with console.capture() as capture:
        console.print(terminal.draw(job))
    blue, green, red = (f"\x1b[{code}m━" in capture.get() for code in (34, 32, 31))
    assert (blue, green, red) == (True, True, False)


def test_many_ranks_are_a_grid() -> None:
    assert len(drawn(running(64)).splitlines()) < 20


def test_what_was_over_at_once_leaves_nothing() -> None:
    job = Job("train", 0, 2)
    job.finish(Status.DONE)
    assert drawn(job).strip() == ""


def run(tmp_path: Path, **environ: str) -> str:
    """What a script writes to a terminal of 80 columns."""
    (tmp_path / "script.py").write_text(SCRIPT)
    ours, theirs = pty.openpty()
    environ = {**os.environ, **shared_server.environment(), "COLUMNS": "80", "LINES": "24", **environ}
    command = [sys.executable, str(tmp_path / "script.py")]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environ)
    os.close(theirs)
    written = b""
    while True:
        try:
            data = os.read(ours, 2**16)
        except OSError:  # nobody has the other side any more
            break
        if not data:
            break
        written += data
    os.close(ours)
    assert process.wait(timeout=60) == 0
    return written.decode()


def test_a_terminal_shows_ranks_below_the_lines(tmp_path: Path) -> None:
    written = run(tmp_path, TERM="xterm-256color")
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written)
    assert re.search(r"rank 1 +done", plain)
    assert "steps 5/5" in plain
    assert plain.rstrip().endswith("after")
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")  # the cursor is back


def test_a_terminal_that_cannot_draw_shows_lines(tmp_path: Path) -> None:
    written = run(tmp_path, TERM="dumb")
    assert "\x1b" not in written
    assert "rank 1" not in written
    assert re.search(r"^\[(0|0-1)\] a line that is longer", written, re.MULTILINE)  # both at once, or one by one


@pytest.mark.parametrize("how", ["", ", detach=True"])
def test_what_a_stream_cannot_encode_does_not_end_a_launch(tmp_path: Path, how: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(CHECK_MARK.replace("HOW", how), encoding="utf-8")
    environ = {
        **os.environ,
        "NOTEBOOK_ACCEL_ENGINE": "spawn",
        "PYTHONIOENCODING": "latin-1",
        "NOTEBOOK_ACCEL_STATE": str(tmp_path / "state"),
    }
    done = subprocess.run([sys.executable, str(script)], capture_output=True, check=True, timeout=60, env=environ)
    assert sorted(done.stdout.decode("latin-1").splitlines()) == ["[7]", "done \\u2713 é"]


def test_rich_is_imported_for_a_terminal_only(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace('    print("after", flush=True)', "    import sys; print('rich' in sys.modules)"))
    environ = {**os.environ, **shared_server.environment()}
    command = [sys.executable, str(script)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "False"


def test_a_password_is_read_without_showing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("getpass.getpass", lambda prompt: f"hidden after {prompt}")
    monkeypatch.setattr("builtins.input", lambda prompt: f"shown after {prompt}")
    for hidden, found in ((True, "hidden after key? "), (False, "shown after key? ")):
        assert console.Terminal().request_input(InputRequested("", "key? ", hidden)) == found
