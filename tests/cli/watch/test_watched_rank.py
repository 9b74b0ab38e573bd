"""The ranks of a launch, drawn in the terminal: in a real one, and piece by piece."""

import errno
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path

import pytest

from notebook_accel.cli.watch import watched_job, watched_rank, wrapper
from notebook_accel.cli.watch.watched_job import WatchedJob
from notebook_accel.cli.watch.watched_launch import LAUNCHER, WatchedLaunch
from notebook_accel.cli.watch.watcher import Watcher
from notebook_accel.errors import ConfigurationError
from notebook_accel.events import (
    Bar,
    Event,
    Exited,
    Failed,
    Heartbeat,
    InputRequested,
    MemoryPeaks,
    Notice,
    Phase,
    PhaseChanged,
    Raised,
    Reports,
    Returned,
    from_wire,
    to_wire,
)
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.show import console
from notebook_accel.launch.wire.stream import Channel
from tests.cli import terminal

SUBJECT = WatchedLaunch("train.py", "CPU, 2 cores", 2, 2)


# In a terminal

SCRIPT = """
import os, sys, time
from notebook_accel import report
from tqdm import tqdm

rank, attempt = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
print(f"attempt {attempt} of {__name__}")
for step in tqdm(range(5), desc=f"steps of {attempt}"):
    report(loss=1 / (step + 1))
if attempt == "0":
    said = __file__ + ".said"
    while rank == "1" and not os.path.exists(said):  # torch ends the other ranks when one fails
        time.sleep(0.01)
    sys.exit(3) if rank == "1" else open(said, "w").close()
if rank == "0" and attempt == "1":
    print("answer", input("really? "))
print("terminal", os.isatty(1), "NOTEBOOK_ACCEL_WATCHER" in os.environ)
"""


def test_a_terminal_shows_each_rank_and_answers_it_and_begins_anew_with_each_attempt(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    code, written = terminal.launch(
        "--num_processes=2", "--max_restarts=1", "--monitor_interval=0.1", script, types=[(r"really\?", "yes\r")]
    )
    shown = terminal.plain(written)
    assert code == 0, shown
    for attempt in "01":
        assert re.search(rf"^\[(0|0-1)\] attempt {attempt} of __main__$", shown, re.MULTILINE)
    assert "[0] really? yes" in shown
    assert re.search(r"^\[0\] answer yes$", shown, re.MULTILINE)
    assert re.search(r"^\[(1|0-1)\] terminal False False$", shown, re.MULTILINE)
    end = shown[shown.rindex("train.py on 2 ranks: done, attempt 2, ") :].strip()
    assert re.search(r"^loss .*0.2, last at report 5, ", end, re.MULTILINE)
    *_, first, second = end.splitlines()
    assert re.match(r"rank 0 +done +━+ +steps of 1 5/5 .*loss=0.2 ", first)
    assert re.match(r"rank 1 +done +━+ +steps of 1 5/5 .*loss=0.2 ", second)
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")  # the cursor is back


def test_an_interrupt_from_the_terminal_ends_all_ranks(tmp_path: Path) -> None:
    script = tmp_path / "waits.py"
    script.write_text(
        "import threading\nfrom notebook_accel import report\n"
        "try:\n    report(loss=1)\n    threading.Event().wait()\nfinally:\n    print('saved')\n"
    )
    code, written = terminal.launch(
        "--num_processes=2", script, types=[(r"rank 0.*loss=1.*\n.*rank 1.*loss=1", "\x03")]
    )
    shown = terminal.plain(written)
    assert code == 130
    assert len(re.findall(r"saved", shown)) in (1, 2)
    assert re.search(r"waits.py on 2 ranks: interrupted, .*\n.*\nrank 0 +stopped.*\nrank 1 +stopped", shown), shown


def test_after_an_interrupt_no_other_rank_prompts(tmp_path: Path) -> None:
    script = tmp_path / "asks.py"
    script.write_text(
        "import os, pathlib\npathlib.Path(f'{__file__}.{os.environ[\"RANK\"]}').touch()\n"
        "while not pathlib.Path(f'{__file__}.{1 - int(os.environ[\"RANK\"])}').exists(): pass\n"
        "input('really? ')\n"
    )
    ended, written = terminal.launch(
        "--num_processes=2", "--monitor_interval=0.1", script, types=[(r"really\?", "\x03")]
    )
    assert ended == 130, written


def test_a_rank_that_fails_ends_the_prompt_of_another(tmp_path: Path) -> None:
    script = tmp_path / "asks.py"
    script.write_text(
        "import os, pathlib, time\n"
        "if os.environ['RANK'] == '0': print('answer', input('really? '))\n"
        "while not pathlib.Path(f'{__file__}.prompted').exists(): time.sleep(0.01)\n"
        "raise ValueError('no more')\n"
    )
    ended, written = terminal.launch(
        "--num_processes=2",
        "--monitor_interval=0.1",
        script,
        types=[(r"really\?", tmp_path / "asks.py.prompted")],
    )
    shown = terminal.plain(written)
    assert ended == 1, shown
    assert re.search(r"^\[0\] really\?\s*\n(.*\n)*\[1\] ValueError: no more$", shown, re.MULTILINE), shown
    assert "answer" not in shown


# A rank


def run(*words: str, **environ: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, env={**os.environ, **environ}
    )
    return done.returncode, done.stdout, done.stderr


TELLS = """
import sys, pickle, inspect
class Own: pass
pickle.loads(pickle.dumps(Own()))
print(__name__, __file__, sys.argv, sys.path[0], __builtins__ is not None, sys.modules["__main__"].Own is Own)
def fail():
    raise ValueError("as it is")
if len(sys.argv) > 1:
    fail()
"""


@pytest.mark.parametrize(
    "how", [["train.py"], ["package/inner.py", "fail"], ["package"], ["-m", "package.inner", "fail"]], ids=str
)
def test_a_script_runs_as_python_runs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "package").mkdir()
    for path in ("train.py", "package/__main__.py", "package/inner.py"):
        (tmp_path / path).write_text(TELLS)
    (tmp_path / "queue.py").write_text("raise ImportError('this is not the standard library')")
    theirs = ["--module" if word == "-m" else word for word in how]
    wrapped = run(wrapper.__file__, *theirs, NOTEBOOK_ACCEL_WATCHER="/nowhere", RANK="0")
    own = run(*how)
    assert wrapped[:2] == own[:2]
    assert wrapped[2] == re.sub(r'  File "<frozen runpy>".*\n', "", own[2])


FORKS = """
import os, sys
from notebook_accel import events, report

report(parent=1)
child = os.fork()
if not child:
    report(child=1)
    os._exit(events.has_sink())
if os.waitpid(child, 0)[1]:
    sys.exit("the child would send as the rank")
sys.exit(3)
"""


def test_a_watched_script_sends_its_progress_and_its_end_and_its_children_send_nothing(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(FORKS)
    address = str(tmp_path / "ranks")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        code, written, errors = run(
            "-W",
            "ignore:This process:DeprecationWarning",  # Python 3.12 warns of a fork beside threads, as torch's are
            wrapper.__file__,
            str(script),
            NOTEBOOK_ACCEL_WATCHER=address,
            RANK="1",
            LOCAL_RANK="0",
        )
        channel = Channel(listener.accept()[0])
    assert (code, written, errors) == (3, "", "")
    (greeting, _), *sent = [(message.header, message.blobs) for message in channel.messages()]
    channel.close()
    assert (greeting["rank"], greeting["local_rank"], greeting["streams"]) == (1, 0, [])
    *heard, end = [
        event for event in (from_wire(*each) for each in sent) if not isinstance(event, (Heartbeat, MemoryPeaks))
    ]
    assert [event for event in heard if isinstance(event, PhaseChanged)] == [PhaseChanged(Phase.RUNNING)]
    assert [row.values for event in heard if isinstance(event, Reports) for row in event.rows()] == [{"parent": 1.0}]
    assert isinstance(end, Exited)
    assert end.code == 3


# Who watches


class Shown(console.Terminal):
    """A terminal that remembers."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, stream: str, text: str) -> None:
        self.text += text

    def request_input(self, request: InputRequested) -> str | None:
        self.text += request.prompt
        return "yes"


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    shown = Shown()
    monkeypatch.setattr(console, "current", shown)
    return shown


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """The jobs that have been drawn."""
    drawn: list[Job] = []

    class View:
        def __init__(self, job: Job) -> None:
            drawn.append(job)

        def refresh(self) -> None:
            pass

        finish = refresh

    monkeypatch.setattr(watched_job, "draw", View)
    return drawn


class Nobody:
    def send(self, ranks: Collection[int], event: Event) -> None:
        raise AssertionError

    def dump_stacks(self, ranks: Collection[int], number: int) -> None:
        raise AssertionError


def welcomed(first: int = 0, attempt: int = 0, subject: WatchedLaunch = SUBJECT) -> WatchedJob:
    made = WatchedJob(subject, Nobody())
    for rank in range(subject.size):
        made.add_rank(rank, {"rank": first + rank, "attempt": attempt, "pid": 1})
        made.apply(rank, Bar(1, n=1, total=2))
    return made


@pytest.mark.parametrize(
    ("code", "interrupted", "status", "phases"),
    [
        (0, False, Status.DONE, [Phase.DONE, Phase.DONE]),
        (7, False, Status.FAILED, [Phase.FAILED, Phase.STOPPED]),
        (130, True, Status.INTERRUPTED, [Phase.STOPPED, Phase.STOPPED]),
    ],
)
def test_the_end_is_told_of_ranks_that_could_not_tell_it(
    shown: Shown, jobs: list[Job], code: int, interrupted: bool, status: Status, phases: list[Phase]
) -> None:
    made = welcomed()
    if status is Status.FAILED:
        made.apply(0, Exited(code=None, signal=9))
        made.apply(LAUNCHER, Notice("rank 0 was killed"))
    if interrupted:
        made.interrupted(1)
    made.finish(code, interrupted=interrupted)
    (job,) = jobs
    assert (job.status, [state.phase for state in job.ranks]) == (status, phases)
    assert shown.text == ("rank 0 was killed\n" if status is Status.FAILED else "")


def test_an_attempt_begins_with_fresh_rows_and_shows_what_was_left_of_the_one_before(
    shown: Shown, jobs: list[Job]
) -> None:
    made = welcomed()
    made.write(0, "stdout", b"one\n")
    made.apply(1, Failed([Raised("ValueError", "ValueError: no", [])], 0.0))
    made.add_rank(0, {"rank": 0, "attempt": 1, "pid": 2})
    made.refresh()
    assert shown.text == "[0] one\n"
    made.apply(0, Bar(1, n=1, total=2))
    made.refresh()
    (job,) = jobs
    assert (job.attempt, job.ranks[1].phase, job.ranks[1].failed) == (1, Phase.STARTING, None)


def test_machines_that_number_themselves_name_their_ranks(shown: Shown, jobs: list[Job]) -> None:
    made = welcomed(first=2, subject=WatchedLaunch("train.py", "", 2, 4))
    made.write(1, "stdout", b"here\n")
    made.finish(0, interrupted=False)
    assert [state.rank for state in jobs[0].ranks] == [2, 3]
    assert shown.text == "[3] here\n"


def test_what_torchs_launcher_writes_is_shown_as_it_is(shown: Shown, jobs: list[Job]) -> None:
    made = welcomed()
    made.write(LAUNCHER, "stdout", b"[default0]:one\n[defau")
    made.write(LAUNCHER, "stdout", b"lt1]:two\n")
    assert shown.text == "[default0]:one\n[default1]:two\n"


def test_ranks_are_heard_until_the_launcher_has_ended(shown: Shown, jobs: list[Job]) -> None:
    """What they have written last is shown, although a process that they have left behind could write more."""
    watcher = Watcher(SUBJECT)
    over, living = os.pipe()
    ranks, writers = [], []
    for rank in (0, 1):
        reading, writing = os.pipe()
        writers.append(writing)
        ranks.append(
            watched_rank.connect(watcher.address, ["stdout"], [reading], rank=rank, local_rank=rank, attempt=0)
        )
    for rank, writing in enumerate(writers):
        os.write(writing, f"rank {rank}\n".encode())
    ranks[0].send(to_wire(InputRequested("", "really? "))[0])
    ranks[1].send(to_wire(Returned())[0])
    ranks[1].close()
    for fd in (writers[1], living):
        os.close(fd)
    watcher.run(over)
    assert ranks[0].receive(wait=True)[0].header == {"kind": "answer", "text": "yes"}
    ranks[0].close()
    os.close(writers[0])
    watcher.finish(0)
    assert shown.text.splitlines() == ["[0] rank 0", "[0] really? [1] rank 1"]
    assert not Path(watcher.address).parent.exists()


def test_other_users_cannot_reach_the_socket_of_a_watcher() -> None:
    watcher = Watcher(SUBJECT)
    assert stat.S_IMODE(Path(watcher.address).parent.stat().st_mode) == 0o700
    watcher.finish(0)


@pytest.mark.parametrize("place", ["short", "x" * 100, "missing"])
def test_a_watcher_finds_another_place_if_tmp_cannot_be_written(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    make = tempfile.mkdtemp
    parent = Path(make(dir="/var/tmp"))  # short, as the path of a socket must be

    def make_elsewhere(prefix: str, dir: str | None = None) -> str:
        if dir == "/tmp":
            raise OSError(errno.EROFS, "Read-only file system")
        return make(prefix=prefix, dir=dir)

    monkeypatch.setattr(tempfile, "mkdtemp", make_elsewhere)
    monkeypatch.setattr(tempfile, "tempdir", str(parent / place))
    if place != "missing":
        (parent / place).mkdir()
    subject = WatchedLaunch("train.py", "", 1, 1)
    if place == "short":
        Watcher(subject).finish(0)
    else:
        with pytest.raises(ConfigurationError, match="Set TMPDIR"):
            Watcher(subject)
    assert not list((parent / place).glob("*"))
    shutil.rmtree(parent)


def test_what_is_no_rank_is_not_listened_to(shown: Shown) -> None:
    watcher = Watcher(SUBJECT)
    over, living = os.pipe()
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(watcher.address)
        stranger.send(b"\xff\xff\xff\xff")
        os.close(living)
        watcher.run(over)
        assert stranger.recv(1) == b""
    watcher.finish(0)
