"""A cell as a function: what it reads, what it assigns, and which cells can't be one."""

from __future__ import annotations

from typing import Any

import cloudpickle
import pytest
from IPython.core.interactiveshell import InteractiveShell

from notebook_accel.errors import ConfigurationError
from notebook_accel.notebook.cells.cell_function import as_function


@pytest.fixture
def shell() -> Any:
    InteractiveShell.clear_instance()
    yield InteractiveShell.instance(user_ns={"rate": 0.5, "model": [1, 2], "unused": object()})
    InteractiveShell.clear_instance()


def run(shell: Any, text: str) -> dict[str, Any]:
    """The names that a cell leaves in a process that it was sent to."""
    function = cloudpickle.loads(cloudpickle.dumps(as_function(shell, text, "In[3]")))
    assert function() is None
    return dict(function.__globals__)


def test_a_cell_reads_the_notebooks_names_and_assigns_its_own(shell: Any) -> None:
    found = run(shell, "import math\nmodel = [math.floor(each * rate) for each in model]\nfor step in range(3): pass")
    assert (found["model"], found["step"]) == ([0, 1], 2)
    assert "unused" not in found
    assert shell.user_ns["model"] == [1, 2]


def test_functions_and_classes_of_a_cell_see_its_names(shell: Any) -> None:
    grow = "def grow():\n    global total\n    total += scale\n"
    text = f"{grow}total, scale = 1, 10\ngrow()\nclass Net:\n    size = scale\n"
    found = run(shell, text)
    assert (found["total"], found["Net"].size, found["Net"].__qualname__) == (11, 10, "Net")


def test_the_line_of_a_cell_magic_is_left_out_and_lines_keep_their_numbers(shell: Any) -> None:
    function = as_function(shell, "%%accelerate -n 2\nhere = 1\nbroken = 1 / 0", "In[3]")
    with pytest.raises(ZeroDivisionError) as caught:
        function()
    innermost = caught.traceback[-1]
    assert (innermost.path, innermost.lineno + 1) == ("In[3]", 3)


def test_an_empty_cell_does_nothing(shell: Any) -> None:
    run(shell, "# only a comment")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("%matplotlib inline\nx = 1", "has magics or shell lines"),
        ("!ls", "has magics or shell lines"),
        ("x = 1\nfrom math import *", "line 2 of the cell imports all names of math: import those that it uses"),
        (
            "x = 1\nnotebook_accel.notebook_launcher(train, (3,))",
            "line 2 of the cell launches ranks itself: start the fun",
        ),
        ("x = 1\nawait x", r"line 2 of the cell can't run as a job: 'await' outside async function"),
        ("x = (", r"line 1 of the cell can't run as a job: '\(' was never closed"),
    ],
)
def test_what_only_the_kernel_runs_is_an_error(shell: Any, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        as_function(shell, text, "In[3]")
