"""Names of the notebook that a rank looks up only as it runs: they are fetched, or the error says what to do."""

# ruff: noqa: E501  # a case of a table is easier to read on one line

from __future__ import annotations

import pytest

from tests.live_notebook import Notebook

SETUP = """
import io, pickle
from dataclasses import dataclass

scale = 3

def scaled(n): return n * scale

class WideNet(torch.nn.Linear):
    def forward(self, x): return super().forward(x) * scaled(1)

wide = WideNet(2, 2)
file = io.BytesIO()
torch.save(wide, file)
blob, pickled = file.getvalue(), pickle.dumps([wide, scaled])
expected = wide(torch.ones(1, 2)).tolist()
"""

FETCHED = {
    "torch.load of a whole model": ("torch.load(io.BytesIO(blob), weights_only=False)(torch.ones(1, 2)).tolist() == expected", True),
    "pickle.loads": ("[pickle.loads(pickled)[0](torch.ones(1, 2)).tolist() == expected, pickle.loads(pickled)[1](2)]", [True, 6]),
    "import __main__": ("(lambda main: [main.scaled(4), main.scale, main.WideNet is type(main.wide)])(__import__('__main__'))", [12, 3, True]),
    "hasattr": ("[hasattr(sys.modules['__main__'], 'scaled'), hasattr(sys.modules['__main__'], 'missing')]", [True, False]),
}  # fmt: skip


@pytest.fixture(autouse=True)
def defined(notebook: Notebook) -> None:
    notebook.check("import sys" + SETUP)


@pytest.mark.parametrize("name", FETCHED)
def test_what_a_rank_looks_up_is_fetched(notebook: Notebook, name: str) -> None:
    source, expected = FETCHED[name]
    assert notebook.value(f"notebook_launcher(lambda: {source}, num_processes=2, device='cpu')") == [expected] * 2


def test_what_a_rank_has_changed_is_not_replaced_by_what_comes_with_a_fetched_name(notebook: Notebook) -> None:
    notebook.check("""
    class Counter:
        count = 0

    def counted(): return Counter.count, scale

    def f():
        global scale
        scale = 10
        Counter.count += 5
        import __main__
        return __main__.counted(), __main__.scaled(2)
    """)
    assert notebook.value("notebook_launcher(f, num_processes=2, device='cpu')") == [((5, 10), 20)] * 2
    assert notebook.value("scale, Counter.count") == (3, 0)


def test_an_instance_of_a_fetched_class_comes_back_as_the_notebooks_own(notebook: Notebook) -> None:
    notebook.check("results = notebook_launcher(lambda: pickle.loads(pickled)[0], num_processes=2, device='cpu')")
    assert notebook.value("[type(model) is WideNet for model in results]") == [True, True]


def test_a_class_that_is_edited_between_two_cells_on_the_ranks_is_fetched_again(notebook: Notebook) -> None:
    notebook.check("class Item:\n    n = 1\nkept = pickle.dumps(Item())")
    assert "1" in notebook.check("%%accelerate -n 2\npickle.loads(kept).n").text
    notebook.check("class Item:\n    n = 2")
    assert "2" in notebook.check("%%accelerate\npickle.loads(kept).n").text
    notebook.check("%accelerate stop")


ADVICE = "The notebook defines {0}, but nothing that was sent to the ranks names it. To send it, name it in the function, such as by a line `{0}`."
EXPLAINED = {
    "eval": ("eval('scaled(' + str(1) + ')')", "NameError: name 'scaled' is not defined", "scaled"),
    "globals()": ("globals()['scal' + 'ed'](1)", "KeyError: 'scaled'", "scaled"),
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_what_cannot_be_fetched_is_explained(notebook: Notebook, name: str) -> None:
    source, error, missing = EXPLAINED[name]
    cell = notebook.run(f"notebook_launcher(lambda: {source}, num_processes=2, device='cpu')")
    assert cell.error == "RankError"
    assert f"{error}\n{ADVICE.format(missing)}" in cell.error_text


def test_a_launch_in_the_background_says_what_to_name(notebook: Notebook) -> None:
    notebook.check("job = notebook_launcher(lambda: pickle.loads(pickled), num_processes=2, device='cpu', block=False)")
    cell = notebook.run("job.result(60)")
    assert ADVICE.format("WideNet") in cell.error_text


def test_a_name_that_cannot_be_sent_says_why(notebook: Notebook) -> None:
    notebook.check("import threading\nlock = threading.Lock()")
    cell = notebook.run("notebook_launcher(lambda: __import__('__main__').lock, num_processes=2, device='cpu')")
    assert "module '__main__' has no attribute 'lock'. The notebook defines it" in cell.error_text
    assert "cannot pickle '_thread.lock' object" in cell.error_text


def test_other_errors_are_left_alone(notebook: Notebook) -> None:
    cell = notebook.run("notebook_launcher(lambda: {}['scaled'], num_processes=2, device='cpu')")
    assert "KeyError: 'scaled'" in cell.error_text
    assert "The notebook defines" not in cell.error_text


def test_names_in_annotations_that_are_texts_are_sent(notebook: Notebook) -> None:
    notebook.check("""
    from typing import Optional, get_type_hints

    class Hint: ...

    @dataclass
    class Row:
        hint: 'Optional[Hint]' = None
        other: 'Later' = None

    class Later:
        back: 'Row'

    def annotated(hint: 'Hint', row: 'Row') -> 'Later': ...

    def hints():
        return sorted(get_type_hints(Row)), sorted(get_type_hints(annotated)), get_type_hints(Later)["back"] is Row
    """)
    expected = (["hint", "other"], ["hint", "return", "row"], True)
    assert (
        notebook.value("notebook_launcher(hints, num_processes=2, device='cpu', block=False).result(60)")
        == [expected] * 2
    )
