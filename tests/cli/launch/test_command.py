"""`notebook-accel launch`, with real processes."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
import pytest

from notebook_accel.launch.driver.attach import jobs
from notebook_accel.launch.engines import base_server
from tests.live_notebook import wait_until, without_gloo

pytestmark = pytest.mark.early


def launch(*arguments: str | Path, cwd: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "notebook_accel", "launch", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    done.stdout = without_gloo(done.stdout)
    return done


@pytest.mark.smoke
def test_one_rank_is_the_script_itself(script: Path) -> None:
    settings = script.with_name("settings.yaml")
    settings.write_text("num_machines: 2\nnum_processes: 4\nmachine_rank: 1\nmain_process_ip: 10.0.0.1\n")
    of_one = ("--num_machines", "1", "--num_processes", "1")
    done = launch("--config_file", settings, *of_one, script, "--num_processes", "3")
    assert (done.returncode, done.stdout, done.stderr) == (0, "__main__|-|-|--num_processes|3\n", "")


@pytest.mark.parametrize(("size", "closed"), [("1", "<&- >&- 2>&-"), ("2", ">&-"), ("2", "<&- >&- 2>&-")])
def test_a_launch_whose_shell_has_closed_standard_streams_runs(closed: str, size: str, tmp_path: Path) -> None:
    script = tmp_path / "writes.py"
    # Ranks write where they like, so a line is to be one write; `print` makes two of it where output has no buffer.
    script.write_text(
        "import os, pathlib, sys\nsys.stdout.write('out\\n')\nsys.stderr.write('err\\n')\n"
        "assert sys.stdin.read() == ''\npathlib.Path(__file__).with_name(os.environ.get('RANK', '0')).touch()"
    )
    command = [sys.executable, "-m", "notebook_accel", "launch", "--num_processes", size, "--cpu", str(script)]
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh", *command]
    done = subprocess.run(shell, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ("" if ">&-" in closed.replace("2>&-", "") else "out\n" * int(size))
    assert done.stderr == ("" if "2>&-" in closed else "err\n" * int(size))
    assert [rank for rank in "01" if (tmp_path / rank).exists()] == list("01"[: int(size)])


def test_its_exit_code_is_that_of_the_script(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text("raise SystemExit(7)")
    assert launch("--num_processes=1", tmp_path / "fails.py").returncode == 7


def test_a_mistake_is_told_in_a_line(tmp_path: Path) -> None:
    done = launch(tmp_path / "train.py")
    assert done.returncode == 2
    assert done.stderr.startswith("error: there is no script ")
    assert done.stderr.count("\n") == 1


@pytest.mark.smoke
def test_a_machine_without_a_place_for_temporary_files_is_told(script: Path) -> None:
    code = "import sys, tempfile; tempfile.tempdir = '/proc/none'; from notebook_accel.cli import entry; entry.run()"
    command = [sys.executable, "-c", code, "launch", "--cpu", "--num_processes", "2", "--tee", "3", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: torch's launcher needs a temporary folder: [Errno 2]")
    assert "Set TMPDIR" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_first_rank_that_fails_gives_the_exit_code(tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text("import os, time\nif os.environ['RANK'] == '1': raise SystemExit(7)\ntime.sleep(60)")
    done = launch("--num-processes", "2", script)
    assert done.returncode == 7
    assert done.stderr == "error: rank 1 of 2 ended with exit code 7; see its output above\n"


def test_a_script_that_takes_too_long_is_ended_and_says_where_its_ranks_are(tmp_path: Path) -> None:
    script = tmp_path / "waits.py"
    script.write_text("import pathlib, threading\npathlib.Path('begun').touch()\nthreading.Event().wait()\n")
    done = launch("--num_processes=2", "--cpu", "--timeout=2", script.name, cwd=tmp_path)
    assert done.returncode == 124
    assert done.stderr.startswith("error: both ranks did not finish within 2 s.")
    if (tmp_path / "begun").exists():  # not on a machine that is too busy to start them within that time
        assert "waits.py" in done.stderr
        assert "threading.Event().wait()" in done.stderr


def test_a_script_goes_on_with_the_ranks_that_are_left(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os, sys\n"
        "if os.environ['RANK'] == '1': sys.exit('no CUDA-capable device is detected')\n"
        "sys.stdout.write(os.environ['WORLD_SIZE'] + '\\n')\n"
    )
    given = ("--num_processes=2", "--cpu", "--max_restarts=2", "--min_processes=1")
    done = launch(*given, script.name, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "starting again with 1 of 2 ranks" in done.stderr
    assert done.stdout.endswith("1\n")


def test_debugging_compares_the_shapes_of_plain_torch_and_names_the_lines_at_which_ranks_part(tmp_path: Path) -> None:
    """Three processes import torch."""
    script = tmp_path / "parts.py"
    script.write_text(
        "import torch, torch.distributed as dist; from notebook_accel import Accelerator\n"
        "accelerator = Accelerator()\n"
        "try: dist.all_reduce(torch.ones(2 + dist.get_rank()))\n"
        "except RuntimeError as error: print(error)\n"
        "accelerator.prepare(torch.nn.Linear(2, 1))\n"
        "if accelerator.is_main_process:\n"
        "    accelerator.gather(torch.ones(2))\n"
        "accelerator.wait_for_everyone()\n"
    )
    done = launch("--num_processes", "2", "--cpu", "--debug", script.name, cwd=tmp_path)
    assert done.returncode == 1
    assert "TensorShape=[3]" in done.stdout
    assert "rank 0: gather at parts.py line 7 in <module>: accelerator.gather(torch.ones(2))\n" in done.stderr
    assert "rank 1: wait_for_everyone at parts.py line 8 in <module>: accelerator.wait_for_everyone()\n" in done.stderr


def notebook(*sources: str) -> str:
    cells = [
        {"cell_type": "code", "source": source, "metadata": {}, "outputs": ["old"], "execution_count": 9}
        for source in sources
    ]
    return json.dumps({"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": cells})


def test_a_notebook_runs_on_every_rank_and_keeps_what_rank_0_shows(tmp_path: Path) -> None:
    """Two ranks that are kernels, each of which imports torch."""
    (tmp_path / "a.ipynb").write_text(
        notebook(
            "%load_ext notebook_accel\nimport os, pathlib, pickle, sys, time\nrank = os.environ['RANK']",
            "%%accelerate\nclass A: pass\npickle.loads(pickle.dumps(A()))\n"
            "print(f'rank {rank} {sys.argv[1]}\\n', end='')\nrank",
            # A rank that fails ends the other, which is to have come this far.
            "pathlib.Path(f'{sys.argv[2]}-{rank}').touch()\n"
            "while not os.path.exists(f'{sys.argv[2]}-1'): time.sleep(0.01)\n"
            "from IPython.display import HTML\ndisplay(HTML('<b>bold</b>'))\nassert rank == '1', 'only here'",
            "print('never')",
        )
    )
    done = launch("--num_processes=2", "--output", tmp_path / "b.ipynb", tmp_path / "a.ipynb", "x", tmp_path / "begun")
    assert done.returncode == 1, done.stderr
    ran = sorted(line for line in done.stdout.splitlines() if line.startswith("rank "))
    assert ran == ["rank 0 x", "rank 1 x"], done.stderr
    assert "AssertionError: only here" in done.stderr
    first, second, third, fourth = json.loads((tmp_path / "b.ipynb").read_text())["cells"]
    assert [cell["execution_count"] for cell in (first, second, third, fourth)] == [1, 2, 3, None]
    assert first["outputs"] == fourth["outputs"] == []
    assert second["outputs"][0] == {"output_type": "stream", "name": "stdout", "text": "rank 0 x\n"}
    assert second["outputs"][1]["data"] == {"text/plain": "'0'"}
    assert third["outputs"][0]["data"]["text/html"] == "<b>bold</b>"
    assert third["outputs"][1]["evalue"] == "only here"


JOIN_LATE = """
import os, pathlib, sys, time
import torch.distributed as dist
from notebook_accel import PartialState

init, joined = dist.init_process_group, pathlib.Path(sys.argv[1])

def init_late(*args, **options):
    init(*args, **options)
    if os.environ["RANK"] == "0":
        time.sleep(0.3)
        joined.touch()

dist.init_process_group = init_late
PartialState(cpu=True)
assert joined.exists()
"""


def test_no_rank_goes_on_and_may_end_before_all_have_joined_the_group(tmp_path: Path) -> None:
    script = tmp_path / "join.py"
    script.write_text(JOIN_LATE)
    done = launch("--num_processes=2", "--cpu", script, tmp_path / "joined")
    assert done.returncode == 0, done.stderr


def test_the_figures_of_a_notebook_are_saved_as_in_a_kernel(tmp_path: Path) -> None:
    (tmp_path / "a.ipynb").write_text(
        notebook(
            "import matplotlib.pyplot as plt\nplt.plot([1, 2]);",
            "plt.plot([2, 1])\nplt.show()\nprint('shown')",
        )
    )
    done = launch("--num_processes=1", "--cpu", "--output", tmp_path / "b.ipynb", tmp_path / "a.ipynb")
    assert (done.returncode, done.stderr) == (0, "")
    first, second = json.loads((tmp_path / "b.ipynb").read_text())["cells"]
    assert [sorted(each["data"]) for each in first["outputs"]] == [["image/png", "text/plain"]]
    figure, printed = second["outputs"]
    assert (sorted(figure["data"]), printed["text"]) == (["image/png", "text/plain"], "shown\n")


def test_a_cell_for_persistent_ranks_finds_what_it_would_find_there(tmp_path: Path) -> None:
    """Two ranks that are kernels, each of which imports torch."""
    (tmp_path / "a.ipynb").write_text(
        notebook(
            "%%accelerate -n 2\nimport torch\nimport torch.distributed as dist\n"
            "share = torch.ones(1, device=device) / world_size\ndist.all_reduce(share)\nshare.item()",
            "%%accelerate --ranks 1 --as found\n[rank]",
            "found, dist.get_rank() == rank",
        )
    )
    done = launch("--num_processes=2", "--cpu", tmp_path / "a.ipynb")
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, ["([[1]], True)"] * 2 + ["1.0"] * 2 + ["[1]"])


def test_a_notebook_on_one_rank_starts_its_own(tmp_path: Path) -> None:
    """A kernel in a process of its own, and a server for its ranks."""
    show = "def show():\n    display(HTML('<b>shown</b>'))\n    return 'done'\n"
    (tmp_path / "a.ipynb").write_text(
        notebook(
            "from IPython.display import HTML\nfrom notebook_accel import notebook_launcher\n"
            "from notebook_accel.launch.show import output\noutput.DISPLAY_WINDOW = 20",
            f"{show}notebook_launcher(show, num_processes=2)",
        )
    )
    done = launch("--num_processes=1", "--output", tmp_path / "b.ipynb", tmp_path / "a.ipynb")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "['done', 'done']"), done.stderr
    outputs = json.loads((tmp_path / "b.ipynb").read_text())["cells"][1]["outputs"]
    displays = [output["data"] for output in outputs if output["output_type"] == "display_data"]
    assert [data.get("text/html", data["text/plain"]) for data in displays] == ["<b>shown</b>"]


SAVE_WHEN_TERMINATED = """
import os, signal, sys, time

def save(*_):
    open(f"saving {os.environ['RANK']}", "w").close()
    while not os.path.exists("go"):
        time.sleep(0.01)
    open(f"saved {os.environ['RANK']}", "w").close()
    os._exit(0)

os.chdir(os.path.dirname(__file__))
signal.signal(signal.SIGTERM, save)
"""


@dataclass
class Waiting:
    """A launch whose two ranks have begun."""

    command: subprocess.Popen[str]
    starter: psutil.Process
    """What has started the ranks: the fork server, or torch's launcher."""
    ranks: list[psutil.Process]
    others: list[psutil.Process]
    """All processes that the command has started."""


@contextmanager
def waiting(tmp_path: Path, door: Sequence[str] = (), before: str = "") -> Iterator[Waiting]:
    script = tmp_path / "waits.py"
    # Ranks write where they like, so a line is to be one write.
    tell = "print(f'{os.getpid()}\\n', end='', flush=True)"
    script.write_text(f"{before}\nimport os, threading\n{tell}\nthreading.Event().wait()")
    command = [sys.executable, "-m", "notebook_accel", "launch", "--num_processes", "2", *door, str(script)]
    # Its folder is to be empty at the end, and a base server's stays.
    environ = {**os.environ, "TMPDIR": str(tmp_path), base_server.VARIABLE: "0"}
    process = subprocess.Popen(
        command,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(signal.signal, signal.SIGHUP, signal.SIG_IGN),  # as `nohup` does
    )
    assert process.stdout is not None
    others: list[psutil.Process] = []
    try:
        ranks = [psutil.Process(int(process.stdout.readline())) for _ in range(2)]
        others += psutil.Process(process.pid).children(recursive=True)
        assert set(ranks) < set(others)
        yield Waiting(process, ranks[0].parent(), ranks, others)
    finally:
        for each in (process, *others):
            with suppress(psutil.NoSuchProcess):
                each.kill()
        process.communicate()


DOORS: dict[str, Sequence[str]] = {"fork server": (), "torch's launcher": ("--role=rank",)}
ENDS: dict[str, tuple[Callable[[Waiting], object], int]] = {
    "interrupt": (lambda launch: launch.command.send_signal(signal.SIGINT), 130),
    "terminate": (lambda launch: launch.command.terminate(), 143),
    "kill": (lambda launch: launch.command.kill(), -9),
    "kill a rank": (lambda launch: launch.ranks[1].kill(), 137),
    "kill what starts the ranks": (lambda launch: launch.starter.kill(), 137),
    "kill both": (lambda launch: [each.kill() for each in (launch.command, launch.starter)], -9),
}


@pytest.mark.parametrize(
    ("door", "way"),
    [
        pytest.param(
            door,
            way,
            # How torch's launcher ends its ranks is mostly torch's own work.
            marks=() if door == "fork server" or way in ("interrupt", "kill") else pytest.mark.nightly,
        )
        for door in DOORS
        for way in ENDS
    ],
)
def test_no_rank_outlives_its_launch(tmp_path: Path, door: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTEBOOK_ACCEL_STATE", str(tmp_path / "state"))
    end, code = ENDS[way]
    with waiting(tmp_path, DOORS[door]) as launch:
        end(launch)
        launch.command.communicate(timeout=60)
        assert launch.command.returncode == code
        _, alive = psutil.wait_procs(launch.others, timeout=40)
        assert not alive
    if door == "fork server" and way == "kill":
        assert [job.status_text for job in jobs()] == ["ended with its command"]
    if way == "kill both":
        return  # nobody is left who could remove a folder
    assert not list(tmp_path.glob("notebook-accel-*"))
    assert not list(tmp_path.glob("torchelastic_*"))


@pytest.mark.parametrize("door", DOORS)
def test_ranks_have_their_time_to_save_however_often_their_launch_is_terminated(tmp_path: Path, door: str) -> None:
    """As by a supervisor that signals all processes of a control group, and the command beside.

    The end of the login comes first, which `nohup` has the launch ignore.
    """
    with waiting(tmp_path, DOORS[door], SAVE_WHEN_TERMINATED) as launch:
        for process in (launch.command, launch.starter):
            process.send_signal(signal.SIGHUP)
            wait_until(partial(is_taken, process.pid, signal.SIGHUP))
        launch.command.terminate()
        wait_until(lambda: len(list(tmp_path.glob("saving *"))) == 2)
        for process in (launch.starter, launch.command, launch.starter):
            process.terminate()
            wait_until(partial(is_taken, process.pid, signal.SIGTERM))
        (tmp_path / "go").touch()
        launch.command.communicate(timeout=60)
    assert len(list(tmp_path.glob("saved *"))) == 2


def is_taken(pid: int, signum: int) -> bool:
    """Whether a process has taken a signal that was sent to it."""
    (pending,) = re.findall(r"ShdPnd:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    return not int(pending, 16) & (1 << (signum - 1))
