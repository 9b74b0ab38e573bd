"""`input()` on ranks, while the others run on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.live_notebook import Notebook

pytestmark = pytest.mark.versions

STEPS = re.compile(r"steps\D+(\d+)")


def next_prompt(notebook: Notebook) -> str:
    prompt: str = notebook.client.get_stdin_msg(timeout=60)["content"]["prompt"]
    return prompt


def test_other_ranks_are_shown_while_one_asks_the_user(notebook: Notebook):
    """A rank counts until the other has its answer, which the test gives only once it has seen it count."""
    cell = notebook.begin("""
    from tqdm import tqdm

    def ask_or_count(answered):
        if os.environ["RANK"] == "1":
            answer = input("and now? ")
            open(answered, "w").close()
            return answer
        for step in tqdm(range(1, 1_000_000), desc="steps"):
            if os.path.exists(answered):
                return "counted"
            if step == 100:
                print("a hundred")
            time.sleep(0.005)

    set_view("text")
    answered = os.path.abspath("answered")
    notebook_launcher(ask_or_count, (answered,), num_processes=2)
    """)
    assert next_prompt(notebook) == "[1] and now? "
    notebook.read_until(cell, "[0] a hundred", timeout=20)
    notebook.wait_until(lambda: any(int(step) > 100 for step in STEPS.findall(cell.text)), 20)
    assert re.search(r"rank 1 +running +waits for your input", cell.text), cell
    notebook.client.input("go on")
    notebook.finish(cell)
    notebook.check("set_view(None)\nos.remove(answered)")
    assert cell.value == "['counted', 'go on']"


def test_ranks_that_ask_together_are_answered_one_after_the_other(notebook: Notebook):
    cell = notebook.begin("notebook_launcher(lambda: input('who? '), num_processes=2)")
    for _ in range(2):
        notebook.client.input(f"you asked {next_prompt(notebook)}")
    notebook.finish(cell)
    assert cell.value == "['you asked [0] who? ', 'you asked [1] who? ']"


@pytest.mark.parametrize(
    "code", ["import getpass as module; ask = lambda: module.getpass('key? ')", "from getpass import getpass as ask"]
)
def test_a_rank_asks_for_a_password_without_showing_it(notebook: Notebook, code: str):
    notebook.check(code)
    cell = notebook.begin("notebook_launcher(lambda: ask() if os.environ['RANK'] == '1' else None, num_processes=2)")
    asked = notebook.client.get_stdin_msg(timeout=60)["content"]
    assert (asked["prompt"].removeprefix("[1] "), asked["password"]) in {("key? ", True), ("Password: ", True)}
    notebook.client.input("secret")
    notebook.finish(cell)
    assert cell.value == "[None, 'secret']"
    assert "secret" not in cell.text


def test_a_rank_that_fails_ends_the_question_of_another(notebook: Notebook, tmp_path: Path):
    asked = tmp_path / "asked"
    cell = notebook.begin(f"""
    def fail():
        if os.environ["RANK"] == "1":
            input("well? ")
        wait_for({str(asked)!r})
        1 / 0

    notebook_launcher(fail, num_processes=2)
    """)
    assert next_prompt(notebook) == "[1] well? "
    asked.touch()
    notebook.finish(cell)
    assert cell.error_text.startswith("rank 0 of 2 raised ZeroDivisionError"), cell
    begun = notebook.begin("input('the next question? ')")
    assert next_prompt(notebook) == "the next question? "
    notebook.client.input("it takes the answer")
    assert notebook.finish(begun).value == "'it takes the answer'"


def test_a_question_of_a_launch_can_be_interrupted(notebook: Notebook):
    cell = notebook.begin("notebook_launcher(lambda: input('well? '), num_processes=2)")
    next_prompt(notebook)
    notebook.interrupt()
    notebook.finish(cell)
    assert cell.error == "KeyboardInterrupt"


def test_stop_in_the_panel_ends_a_question(notebook: Notebook):
    cell = notebook.begin("set_view('widget')\nnotebook_launcher(lambda: input('well? '), num_processes=2)")
    next_prompt(notebook)
    notebook.wait_until(lambda: bool(cell.widgets), 20)
    notebook.say_while_busy(cell.widgets[0], {"cmd": "stop", "click": 1})
    notebook.finish(cell)
    notebook.check("set_view(None)")
    assert cell.error == "KeyboardInterrupt"
