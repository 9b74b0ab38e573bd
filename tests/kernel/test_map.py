"""A function of the notebook, called with many items on ranks that may die."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from tests.kernel.conftest import PRELUDE
from tests.live_notebook import Notebook

DEFINITIONS = """
import dataclasses, os, signal, sys, time

@dataclasses.dataclass
class Answer:
    text: str
    rank: int

class Model:
    def __init__(self):
        self.tensor = torch.ones(2)

def generate(prompt, model):
    assert model.tensor.sum() == 2
    return Answer(prompt.upper(), int(os.environ["LOCAL_RANK"]))

def slow(x, go=None):
    while x == 3 and go is not None and not os.path.exists(go):
        time.sleep(0.01)
    return x * x
"""


def test_values_come_back_in_order_with_classes_of_the_notebook(notebook: Notebook) -> None:
    """Also with tensors, and with items that are objects of the notebook; the panel counts them."""
    notebook.check(DEFINITIONS)
    notebook.check(
        "prompts = [f'prompt {i}' for i in range(60)]\n"
        "found = map_on_ranks(generate, iter(prompts), setup=Model, num_processes=2)"
    )
    assert notebook.value("[answer.text for answer in found] == [each.upper() for each in prompts]") is True
    assert notebook.value("{type(each) is Answer for each in found}, found.failures") == ({True}, [])
    assert notebook.value("{answer.rank for answer in found} <= {0, 1}") is True
    assert notebook.value(
        "[float(each.sum()) for each in map_on_ranks(lambda answer: torch.full((2,), len(answer.text) / 2), "
        "[Answer('ab', 0), Answer('abcd', 0)], num_processes=1, device='cpu')]"
    ) == [2.0, 4.0]
    assert notebook.value("map_on_ranks(len, [], num_processes=1)") == []


def test_a_rank_that_is_killed_is_replaced_and_its_items_are_given_again(notebook: Notebook, tmp_path: Path) -> None:
    notebook.check(DEFINITIONS)
    go = str(tmp_path / "go")
    notebook.check(
        "from functools import partial\n"
        f"job = map_on_ranks(partial(slow, go={go!r}), range(50), num_processes=2, block=False)\n"
        "def bar(): return next(iter(job.ranks[0].bars.values()), None)\n"
        "while bar() is None or bar().n < 1 or not all(state.pid for state in job.ranks): time.sleep(0.01)"
    )
    pids = notebook.value("pids = [state.pid for state in job.ranks]; pids")
    assert len(pids) == 2
    notebook.check(
        f"for pid in pids: os.kill(pid, {int(signal.SIGKILL)})\n"
        "while {state.pid for state in job.ranks} & {*pids}: time.sleep(0.01)"
    )
    Path(go).touch()
    assert notebook.value("job.result() == [x * x for x in range(50)]") is True
    assert notebook.value("job.status.value") == "done"


def test_an_item_that_fails_is_named_and_the_others_have_values(notebook: Notebook) -> None:
    notebook.check(DEFINITIONS)
    notebook.check(
        "def fragile(items):\n"
        "    if 7 in items: os.kill(os.getpid(), signal.SIGSEGV)\n"
        "    if 9 in items: raise ValueError('nine')\n"
        "    return [x + 1 for x in items]"
    )
    cell = notebook.check("found = map_on_ranks(fragile, range(20), batch=4, num_processes=2)")
    assert "2 of 20 items failed: 7, 9" in cell.text
    assert notebook.value("[each.index for each in found.failures]") == [7, 9]
    assert notebook.value("[x for x in found if isinstance(x, int)] == [x + 1 for x in range(20) if x not in (7, 9)]")
    assert "ValueError: nine" in notebook.value("repr(found[9])")


def test_an_item_that_kills_its_rank_is_the_only_one_that_fails(notebook: Notebook) -> None:
    """Those that the rank had answered, or had not begun, are not blamed, even if nothing is tried again."""
    notebook.check(DEFINITIONS)
    notebook.check("def fatal(x):\n    if x % 8 == 7: os._exit(3)\n    return x")
    notebook.check("found = map_on_ranks(fatal, range(64), retries=0, num_processes=1)")
    assert notebook.value("[each.index for each in found.failures]") == list(range(7, 64, 8))


def test_an_interrupted_map_continues_where_it_was(notebook: Notebook, tmp_path: Path) -> None:
    notebook.check(DEFINITIONS)
    folder, go = str(tmp_path / "answers"), str(tmp_path / "go")
    call = f"map_on_ranks(partial(slow, go={go!r}), range(30), checkpoint={folder!r}, num_processes=1"
    notebook.check("from functools import partial")
    notebook.check(f"job = {call}, block=False)")
    notebook.check("while not job.ranks[0].bars or next(iter(job.ranks[0].bars.values())).n < 1: time.sleep(0.01)")
    assert "another map_on_ranks saves to" in notebook.run(f"{call})").error_text
    notebook.check("job.cancel(); job.wait()")
    Path(go).touch()
    output = str(tmp_path / "answers.jsonl")
    notebook.check("calls = []")
    assert notebook.value(f"str({call}, output={output!r}))") == output
    assert [json.loads(line) for line in Path(output).read_text().splitlines()] == [x * x for x in range(30)]
    # In a new kernel nothing is left to do, so a function that can't run is never called.
    again = notebook.value(f"map_on_ranks(lambda x: 1 / 0, range(30), checkpoint={folder!r}, num_processes=1)")
    assert again == [x * x for x in range(30)]


def test_what_cannot_work_is_refused(notebook: Notebook, tmp_path: Path) -> None:
    notebook.check(DEFINITIONS)
    for call, message in {
        "map_on_ranks(slow, 'text')": "items must be a list or another iterable",
        "map_on_ranks(slow, 5)": "items must be a list or another iterable",
        "map_on_ranks(slow, [1], batch=0)": "batch=0: it must be at least 1",
        "map_on_ranks(slow, [1], retries=-1)": "retries=-1: it must be at least 0",
        "map_on_ranks(3, [1])": "must be a function",
        "map_on_ranks(slow, [1], output='values.csv')": "must end in .jsonl or .parquet",
        f"map_on_ranks(slow, [1], output={str(tmp_path / 'no' / 'a.jsonl')!r})": "there is no folder",
        "map_on_ranks(slow, [1], bath=3)": "no argument 'bath'; did you mean batch?",
        "map_on_ranks(lambda x: {1}, [1], output='values.jsonl', num_processes=1)": "can't be written as JSON",
        "map_on_ranks(slow, [1], setup=lambda: 1 / 0, num_processes=1)": "ZeroDivisionError",
    }.items():
        assert message in notebook.run(call).error_text, call


def test_a_detached_map_survives_the_death_of_its_kernel(notebook: Notebook, tmp_path: Path) -> None:
    """Also with items and values that are objects of the notebook, a module of the user, and an item that fails.

    Takes seconds: the kernel imports torch twice.
    """
    (tmp_path / "user_items.py").write_text("class Prompt:\n    def __init__(self, text):\n        self.text = text\n")
    go = tmp_path / "go"
    definitions = DEFINITIONS + (
        f"os.chdir({str(tmp_path)!r})\n"
        "from user_items import Prompt\n"
        "@dataclasses.dataclass\n"
        "class Question:\n"
        "    prompt: Prompt\n"
        "    number: int\n"
        "def reply(question, model, go):\n"
        "    while not os.path.exists(go): time.sleep(0.01)\n"
        "    if question.number == 7: raise ValueError('seven')\n"
        "    return Answer(question.prompt.text.upper(), question.number)\n"
    )
    notebook.check(definitions)
    notebook.check(
        "from functools import partial\n"
        "questions = (Question(Prompt(f'prompt {i}'), i) for i in range(20))\n"
        f"job = map_on_ranks(partial(reply, go={str(go)!r}), questions, setup=Model, num_processes=2, detach=True)\n"
        "while not all(state.pid for state in job.ranks): time.sleep(0.01)"
    )
    os.kill(notebook.pid, signal.SIGKILL)
    notebook.restart()
    go.touch()
    cell = notebook.check(PRELUDE + definitions + "job = attach()\nfound = job.result(60)")
    assert "1 of 20 items failed: 7" in cell.text
    assert notebook.value("job.status.value, len(found), found.failures[0].index, found[7] is found.failures[0]") == (
        ("done", 20, 7, True)
    )
    assert notebook.value("[(each.text, each.rank) for each in found if type(each) is Answer]") == (
        [(f"PROMPT {number}", number) for number in range(20) if number != 7]
    )


def test_a_detached_map_saves_writes_and_refuses_as_any_other(notebook: Notebook, tmp_path: Path) -> None:
    """Takes seconds: the process of each detached job starts a server."""
    notebook.check(DEFINITIONS + f"os.chdir({str(tmp_path)!r})")
    notebook.check(
        "more = dict(num_processes=2, checkpoint='saved', output='found.jsonl')\n"
        "job = map_on_ranks(slow, range(30), detach=True, **more)\n"
        "os.chdir('/')\n"
        "path = job.result(60)"
    )
    assert notebook.value("str(path)") == str(tmp_path / "found.jsonl")
    assert (tmp_path / "found.jsonl").read_text().split() == [str(number**2) for number in range(30)]
    notebook.check(
        f"os.chdir({str(tmp_path)!r})\n"
        f"job = map_on_ranks(slow, range(30), checkpoint='saved', num_processes=2, detach=True)\n"
        "assert job.result(60) == [x * x for x in range(30)]"
    )
    notebook.check(
        "from functools import partial\n"
        "job = map_on_ranks(partial(slow, go='go'), range(60), num_processes=2, checkpoint='other', detach=True)"
    )
    for more in ("", ", detach=True"):
        cell = notebook.run(f"map_on_ranks(slow, range(60), checkpoint='other', num_processes=2{more})")
        assert cell.error == "ConfigurationError", cell.error_text
        assert "another map_on_ranks saves to" in cell.error_text
    (tmp_path / "go").touch()
    assert notebook.value("job.result(60) == [x * x for x in range(60)]") is True
    cell = notebook.run("map_on_ranks(slow, [sys.stdin], num_processes=2, detach=True)")
    assert cell.error == "PayloadError"
    assert "with detach=True, the items are pickled as a whole, which failed" in cell.error_text
