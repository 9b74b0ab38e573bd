"""What the ranks of a launch display: figures, tables and the like, below the cell, in a real kernel."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from notebook_accel.launch.show.display_content import compose
from tests.kernel.conftest import end
from tests.live_notebook import Cell, Notebook

pytestmark = pytest.mark.early

PRELUDE = """
import os
from IPython.display import HTML, clear_output, update_display

def rank():
    return int(os.environ["RANK"])
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[Notebook]:
    """A notebook that shows jobs as text."""
    found = Notebook()
    found.check(
        "import notebook_accel\nfrom notebook_accel import attach, notebook_launcher\nnotebook_accel.set_view('text')"
    )
    found.check(PRELUDE)
    found.merge_within(20)
    yield found
    end(found)


def launch(kernel: Notebook, body: str, options: str = "num_processes=2") -> Cell:
    """Runs a function with this body on two ranks; what is drawn of the job itself is left out."""
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    return kernel.check(f"def show():\n{lines}\nnotebook_launcher(show, {options})")


def shown(cell: Cell, type: str = "text/html") -> list[str]:
    return [line for line in cell.in_order(type) if not line.startswith("show() on ")]


def beside(*parts: str) -> str:
    """What ranks display side by side: rank 0 the first part, and so on."""
    return compose({f"[{rank}]": ({"text/html": part}, {}) for rank, part in enumerate(parts)})["text/html"]


def of(rank: int, html: str) -> str:
    """What one of several ranks displays."""
    return compose({f"[{rank}]": ({"text/html": html}, {})})["text/html"]


@pytest.mark.versions
def test_what_ranks_display_is_shown_in_its_place_once_if_equal_and_in_the_order_of_the_ranks(kernel: Notebook) -> None:
    cell = launch(
        kernel,
        """
print("before")
display(HTML("<b>same</b>"))
print("between")
display(HTML(f"<b>{rank()}</b>"))
print("after")
""",
    )
    assert shown(cell) == [
        *("[0-1] before", "<b>same</b>", "[0-1] between"),
        *(beside("<b>0</b>", "<b>1</b>"), "[0-1] after"),
    ]


def test_print_and_display_keep_their_order_however_many_there_are(kernel: Notebook) -> None:
    cell = launch(
        kernel,
        """
for step in range(100):
    print(step)
    display(HTML(f"<b>{step}</b>"))
""",
        "num_processes=1",
    )
    assert shown(cell) == [part for step in range(100) for part in (str(step), f"<b>{step}</b>")]


@pytest.mark.versions
def test_figures_of_pyplot_are_shown(kernel: Notebook) -> None:
    cell = launch(
        kernel,
        """
import matplotlib.pyplot as plt
plt.plot([0, 1])
plt.show()
plt.plot([rank(), 2])  # shown at the end, as that of a cell
""",
    )
    pictures = [bundle["image/png"] for bundle in cell.bundles if "image/png" in bundle]
    assert len(pictures) == 1
    both = shown(cell)[-1]
    assert both.count('<img src="data:image/png;base64,') == 2
    assert both.index('alt="[0] &lt;Figure') < both.index('alt="[1] &lt;Figure')


def test_a_figure_that_is_displayed_itself_is_a_picture(kernel: Notebook) -> None:
    cell = launch(
        kernel,
        """
import matplotlib.pyplot as plt
figure, axes = plt.subplots()
plt.close(figure)
display(figure)
""",
    )
    assert sum("image/png" in bundle for bundle in cell.bundles) == 1


def test_tables_of_pandas_are_shown(kernel: Notebook) -> None:
    cell = launch(
        kernel,
        """
import pandas as pd
display(pd.DataFrame({"loss": [0.5]}))
""",
    )
    assert sum("<table" in bundle.get("text/html", "") for bundle in cell.bundles) == 1


@pytest.mark.versions
def test_an_output_is_updated_in_its_place(kernel: Notebook) -> None:
    cell = launch(
        kernel,
        """
handle = display(HTML("<b>empty</b>"), display_id=True)
print("below")
for step in range(3):
    handle.update(HTML(f"<b>{step}</b>"))
update_display(HTML(f"<b>rank {rank()}</b>"), display_id=handle.display_id)
""",
    )
    assert shown(cell) == [of(0, "<b>rank 0</b>"), "[0-1] below", of(1, "<b>rank 1</b>")]


@pytest.mark.versions
def test_a_rank_that_clears_its_output_draws_in_one_place(kernel: Notebook) -> None:
    cell = launch(
        kernel,
        """
for step in range(5):
    clear_output(wait=True)
    display(HTML(f"<b>step {step}</b>"))
print("done")
""",
    )
    assert shown(cell) == ["<b>step 4</b>", "[0-1] done"]


def test_html_that_does_not_close_its_tags_stays_an_output_of_its_own(kernel: Notebook) -> None:
    cell = launch(kernel, 'display(HTML(f"</details><div>{rank()}"))\ndisplay(HTML(f"<i>{rank()}</i>"))')
    own = [f"<div>[{rank}]</div>\n</details><div>{rank}" for rank in (0, 1)]
    assert shown(cell) == [*own, beside("<i>0</i>", "<i>1</i>")]


def test_what_one_rank_displays_needs_no_other(kernel: Notebook) -> None:
    cell = launch(
        kernel,
        """
if rank() == 1:
    display(HTML("<b>1</b>"))
""",
    )
    assert shown(cell) == [of(1, "<b>1</b>")]


def test_a_launch_that_does_not_block_displays_below_its_cell(kernel: Notebook) -> None:
    cell = launch(kernel, 'display(HTML("<b>later</b>"))', "num_processes=2, block=False")
    kernel.check("_.result(60)")
    assert shown(cell) == ["<b>later</b>"]


@pytest.mark.versions
def test_a_rank_that_is_a_thread_of_the_kernel_displays_as_a_cell_does(kernel: Notebook) -> None:
    kernel.check("os.environ['NOTEBOOK_ACCEL_ENGINE'] = 'inprocess'")
    try:
        cell = launch(kernel, 'print("a")\ndisplay(HTML("<b>b</b>"))', "num_processes=1")
    finally:
        kernel.check("del os.environ['NOTEBOOK_ACCEL_ENGINE']")
    assert shown(cell) == ["a", "<b>b</b>"]


def test_what_a_detached_job_has_displayed_is_shown_again(kernel: Notebook) -> None:
    kernel.check("import notebook_accel.launch.driver.follower")
    body = """
print("before")
display(HTML(f"<b>{rank()}</b>"))
handle = display(HTML("<b>empty</b>"), display_id=True)
print("after")
handle.update(HTML("<b>full</b>"))
"""
    both = beside("<b>0</b>", "<b>1</b>")
    expected = ["[0-1] before", both, "<b>full</b>", "[0-1] after"]
    first = launch(kernel, body, "num_processes=2, detach=True")
    kernel.check("job = _\njob.wait(60)")
    kernel.read_until(first, "show() on 2 ranks: done")
    assert shown(first) == expected
    again = kernel.check("attach(job.id).wait(20)")
    kernel.read_until(again, "show() on 2 ranks: done")
    assert shown(again) == expected
