"""The ranks of a launch, drawn in a real terminal, and how a script finds its process."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from notebook_accel.cli.launch import wrapper
from tests.cli import terminal

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
print("terminal", os.isatty(1))
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
    assert re.search(r"^\[(1|0-1)\] terminal False$", shown, re.MULTILINE)
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
    wrapped = run(wrapper.__file__, *theirs, RANK="0")
    own = run(*how)
    assert wrapped[:2] == own[:2]
    assert wrapped[2] == re.sub(r'  File "<frozen runpy>".*\n', "", own[2])
