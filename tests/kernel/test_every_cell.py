"""`%accelerate cells on`: each cell runs on the ranks, in a real kernel."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kernel.conftest import end
from tests.live_notebook import CELL_TIMEOUT, Cell, Notebook

pytestmark = pytest.mark.early

ON = "%accelerate cells on -n 2"


@pytest.fixture(scope="module")
def kernel() -> Iterator[Notebook]:
    notebook = Notebook()
    notebook.check("import notebook_accel\nplace = 'kernel'")
    notebook.check("%%accelerate -n 2\nimport os, time\nimport torch.distributed as dist")
    notebook.merge_within(30)
    yield notebook
    end(notebook)


@pytest.fixture
def cells(kernel: Notebook) -> Notebook:
    """A notebook whose cells run on two ranks."""
    kernel.check(ON)
    return kernel


def lines(cells: Notebook, body: str) -> list[str]:
    return cells.check(body).lines


def fails(cells: Notebook, body: str) -> Cell:
    found = cells.run(body)
    assert found.error is not None, f"it did not fail: {found}"
    return found


def html(cell: Cell) -> list[str]:
    """The pages that a cell displays."""
    return [bundle.get("text/html", "").strip() for bundle in cell.bundles]


def here(cells: Notebook, expression: str) -> Any:
    """The value of an expression in the kernel."""
    return cells.value(f"%%here\n{expression}")


def reply(cells: Notebook, message: str) -> dict[str, Any]:
    """What the kernel answers to a request."""
    while True:
        found = cells.client.get_shell_msg(timeout=CELL_TIMEOUT)
        if found["parent_header"].get("msg_id") == message:
            content: dict[str, Any] = found["content"]
            return content


def completed(cells: Notebook, code: str) -> list[str]:
    """What Tab offers at the end of a cell."""
    matches: list[str] = reply(cells, cells.client.complete(code, len(code)))["matches"]
    return matches


def inspected(cells: Notebook, code: str, detail: int = 0) -> str:
    """What Shift+Tab shows at the end of a cell; empty if the name is unknown."""
    found = reply(cells, cells.client.inspect(code, len(code), detail))
    return re.sub(r"\x1b\[[\d;]*m", "", found["data"]["text/plain"]) if found["found"] else ""


# Where cells run


@pytest.mark.smoke
@pytest.mark.versions
def test_each_cell_runs_on_the_ranks_and_names_live_on(cells: Notebook):
    assert cells.check("mine = rank + 1").text == ""
    assert lines(cells, "mine") == ["[0] 1", "[1] 2"]
    assert lines(cells, "place, world_size") == ["[0-1] ('kernel', 2)"]
    assert here(cells, "'mine' in globals()") is False


@pytest.mark.versions
def test_here_runs_a_cell_in_the_kernel_as_any_other_cell(cells: Notebook):
    cells.check("place = f'rank {rank}'")
    assert here(cells, "import asyncio\nawait asyncio.sleep(0)\nplace") == "kernel"
    assert cells.check("%%here\n%%time\nplace").stdout.startswith("CPU times")
    assert "----> 3 place.nothing" in fails(cells, "%%here\nplace\nplace.nothing").traceback
    cells.check("%accelerate cells off")
    assert cells.value("%%here\nplace") == "kernel"
    assert fails(cells, "%%here now\nplace").error_text.startswith("%%here takes no arguments, not 'now'")


@pytest.mark.versions
def test_rank_runs_a_cell_on_some_ranks(cells: Notebook):
    assert lines(cells, "%%rank 1\nrank") == ["[1] 1"]
    assert lines(cells, "%%rank 0-1\nrank") == ["[0] 0", "[1] 1"]
    assert lines(cells, "%%rank 0,1 --show all\nworld_size") == ["[0-1] 2"]
    found = fails(cells, "%%rank 1\nprint('so far')\n1 / 0")
    assert "-->    3 1 / 0" in found.traceback
    assert "1 %%rank 1" in found.traceback
    assert fails(cells, "%%rank\nrank").error_text.startswith("%%rank: write the ranks first, as in %%rank 0")
    assert fails(cells, "%%rank 0 1\nrank").error_text.startswith("%%rank 0 1: write the ranks first")
    assert fails(cells, "%%rank 2\nrank").error_text.endswith("the ranks are 0 to 1")
    cells.check("%accelerate cells off")
    assert lines(cells, "%%rank 1\nrank") == ["[1] 1"]


def test_options_hold_for_each_cell(cells: Notebook):
    assert cells.check("%accelerate cells on --ranks 1").stdout.startswith(
        "Each cell runs on the 2 ranks of %%accelerate (CPU"
    )
    assert lines(cells, "rank") == ["[1] 1"]
    assert ", with --ranks 1" in cells.check("%accelerate cells").stdout
    cells.check("%accelerate cells on --show all")
    assert html(cells.check("%%html\n<b>hi</b>")).count("<b>hi</b>") == 1
    assert fails(cells, "%accelerate cells on --ranks 4").error_text == "--ranks 4: the ranks are 0 to 1"
    cells.check("not_lost = rank")
    assert fails(cells, "%accelerate cells on -n 3 --ranks 4").error_text == "--ranks 4: the ranks are 0 to 2"
    assert fails(cells, "%accelerate cells on -n 1 --show 1").error_text == "--show 1: the only rank is 0"
    assert lines(cells, "not_lost") == ["[0] 0", "[1] 1"]
    assert ", with --show all" in cells.check("%accelerate cells").stdout
    assert fails(cells, "%accelerate cells on --as x").error_text == (
        "--as x applies to a single cell: begin the cell with %%accelerate --as x"
    )
    assert fails(cells, "%accelerate cells on --no-block").error_text.startswith("--no-block applies to a single cell")
    assert fails(cells, "%accelerate cells -n 2").error_text.startswith("%accelerate cells takes options only with on")
    assert fails(cells, "%accelerate cells on -n two").error_text.startswith("-n two: expected a number")
    assert fails(cells, "%accelerate cells maybe").error == "ConfigurationError"


@pytest.mark.versions
def test_lines_of_this_package_run_in_the_kernel_in_their_place(cells: Notebook):
    cells.check("there = 5 + rank\n\n%accelerate pull there\nthere = 6\nthere")
    assert here(cells, "there") == 5
    found = cells.check("print('first')\nplace\njobs = %accelerate jobs\n@staticmethod\ndef later(): return 2\nlater()")
    assert found.lines == ["[0-1] first", "[0-1] 2"]
    assert here(cells, "type(jobs).__name__") == "Jobs"
    assert fails(cells, "there = 6\nif there:\n    %accelerate stop").error_text.startswith(
        "`%accelerate stop` in line 3 runs in the kernel, but the statement around it runs on the ranks."
    )
    assert fails(cells, "there = 7\n%accelerate pull nowhere\nthere = 8").error_text.endswith("has no variable nowhere")
    assert lines(cells, "there") == ["[0-1] 7"]


def test_what_a_front_end_runs_unseen_stays_in_the_kernel(cells: Notebook):
    cells.check("unseen = 'not yet'")
    for options in ({"silent": True}, {"store_history": False}):
        message = cells.client.execute(f"unseen = {str(options)!r}", **options)
        assert reply(cells, message)["status"] == "ok"
        assert here(cells, "unseen") == str(options)
    message = cells.client.execute("1", user_expressions={"found": "place"})
    assert reply(cells, message)["user_expressions"]["found"]["data"]["text/plain"] == "'kernel'"


def test_a_cell_on_the_ranks_does_not_count_as_a_change_of_the_notebooks_variables(cells: Notebook):
    cells.check("%%here\nhuge = list(range(3_000_000))")
    for _ in range(2):
        assert "%accelerate push" not in cells.check("len(huge)").text
    cells.check("%%here\nhuge.append(0)")
    assert "%accelerate push" in cells.check("len(huge)").text


def test_cells_without_statements_do_nothing(cells: Notebook):
    before = cells_so_far(cells)
    assert cells.check("# only a comment\n\n").text == cells.check("").text == ""
    assert cells_so_far(cells) == before
    cells.check("rank")
    assert cells_so_far(cells) == before + 1


def cells_so_far(cells: Notebook) -> int:
    return int(cells.check("%accelerate").displays[0].split("cells so far: ")[1].split()[0])


# What IPython adds to Python


@pytest.mark.versions
def test_what_ipython_adds_works_on_the_ranks(cells: Notebook):
    assert set(lines(cells, "import asyncio\nawait asyncio.sleep(0)\nworld_size")) == {"[0-1] 2"}
    assert set(lines(cells, "word = f'r{rank}'\n!echo shell $word")) == {"[0] shell r0", "[1] shell r1"}
    assert lines(cells, "%%bash\necho bash") == ["[0-1] bash"]
    assert html(cells.check("%%html\n<b>hi</b>")).count("<b>hi</b>") == 1
    timed = lines(cells, "%%time\nworld_size")
    assert timed[-1] == "[0-1] 2"
    assert any("Wall time" in line for line in timed)
    assert lines(cells, "%%accelerate --ranks 1\nrank") == ["[1] 1"]
    found = cells.check("from IPython.display import Markdown\nMarkdown('**bold**')")
    assert [bundle["text/markdown"] for bundle in found.bundles if "text/markdown" in bundle] == ["**bold**"]
    assert lines(cells, "exit") == ["[0-1] The ranks keep running; `%accelerate stop` ends them."]
    assert "Return the sum" in cells.check("sum?").text


def test_figures_of_the_first_rank_are_shown(cells: Notebook):
    """Takes long since the ranks import matplotlib."""
    found = cells.check("import matplotlib.pyplot as plt\nplt.plot([rank, 2])\nplt.show()")
    assert sum("image/png" in bundle for bundle in found.bundles) == 1


def test_input_says_which_rank_asks(cells: Notebook):
    found = cells.begin("answer = input('name? ') if rank else ''\nanswer")
    assert cells.client.get_stdin_msg(timeout=CELL_TIMEOUT)["content"]["prompt"] == "[1] name? "
    cells.client.input("Ada")
    assert cells.finish(found).lines == ["[0] ''", "[1] 'Ada'"]
    refused = cells.client.execute("input()", allow_stdin=False)
    assert "there is nobody to ask" in reply(cells, refused)["evalue"]


def test_the_notebooks_history_has_the_users_own_text(cells: Notebook):
    cells.check("# as typed\ncounted = 1\n!true")
    raw = here(cells, "get_ipython().history_manager.input_hist_raw[-2]")
    assert raw == "# as typed\ncounted = 1\n!true"
    assert here(cells, "In[-3]").rstrip() == "# as typed\ncounted = 1\nget_ipython().system('true')"
    cells.check("counted += 1")
    assert "counted += 1" in cells.check("%rerun -l 1").stdout
    assert lines(cells, "counted") == ["[0-1] 3"]
    mixed = cells.check("counted += 1\n%rerun -l 1\ncounted").lines  # the line before runs again
    assert [line for line in mixed if line.startswith("[")] == ["[0-1] 4"] * 2
    assert here(cells, "'counted' in globals()") is False


def test_a_rank_keeps_cells_and_values_under_the_numbers_of_the_notebook(cells: Notebook):
    number = here(cells, "len(In)")
    assert lines(cells, "rank + 40") == ["[0] 40", "[1] 41"]
    assert lines(cells, "_ + 1") == ["[0] 41", "[1] 42"]
    expected = "[0-1] " + repr(("rank + 40", True, True))
    assert lines(cells, f"In[{number}], Out[{number}] == rank + 40, _{number} == __") == [expected]
    cells.check("%%accelerate\n7")
    assert lines(cells, f"max(Out) == {number + 2}") == ["[0-1] True"]


# Errors, interrupts, and ends


@pytest.mark.versions
def test_errors_point_at_the_cell(cells: Notebook):
    number = here(cells, "len(In)")
    found = fails(cells, "\n\nx = 1\n!true\nif rank: x.nothing")
    assert "rank 1 of 2 raised AttributeError" in found.error_text
    assert f"In[{number}], line 5" in found.error_text
    assert "-->    5 if rank: x.nothing" in found.error_text
    # IPython's own error, which Python 3.13 has a class for.
    assert fails(cells, "x = (").error in ("SyntaxError", "_IncompleteInputError")
    assert f"In[{number + 2}], line 2" in fails(cells, "x = 1\nreturn x").error_text
    assert lines(cells, "x") == ["[0-1] 1"]


def test_an_interrupt_keeps_names(cells: Notebook):
    cells.check("kept = rank")
    found = cells.read_until(cells.begin("print('ready')\ntime.sleep(60)"), "ready")
    cells.interrupt()
    assert cells.finish(found, timeout=10).error == "KeyboardInterrupt"
    assert lines(cells, "kept") == ["[0] 0", "[1] 1"]


def test_a_front_end_may_ask_how_many_ranks_run_the_cells(cells: Notebook):
    asked = "__import__('notebook_accel.notebook.cells.every_cell', fromlist=['every_cell']).ranks_of_cells()"
    assert here(cells, asked) == 2
    cells.check("%accelerate stop")
    assert here(cells, asked) == -1
    cells.check("%accelerate cells off")
    assert cells.value(asked) == 0


def test_the_mode_outlives_the_ranks(cells: Notebook):
    cells.check("gone = rank")
    assert cells.check("%accelerate stop").stdout == "2 ranks have ended; the next cell starts new ones\n"
    assert "Each cell runs on the ranks; the next cell" in cells.check("%accelerate").displays[0]
    assert cells.check("%accelerate cells").stdout == "Each cell runs on the ranks; the next cell starts them\n"
    found = cells.check("import os, time\nworld_size")
    assert "cells run on 2 ranks, which are new; the variables of the old ranks are gone: gone" in found.text
    assert found.lines[-1] == "[0-1] 2"
    assert "gone" not in cells.check("rank").text
    cells.check("gone = rank")
    found = cells.check("%accelerate cells on -n 1")
    assert "starting 1 rank instead of 2; the old variables are lost: gone, time, os (--keep passes on" in found.text
    assert lines(cells, "world_size") == ["1"]
    cells.check(f"{ON}\n%accelerate restart")
    assert lines(cells, "world_size") == ["[0-1] 2"]


def test_the_ranks_keep_their_names_when_cells_run_in_the_kernel_again(cells: Notebook):
    cells.check("held = rank")
    assert cells.check("%accelerate cells off").stdout.startswith(
        "Cells run in the kernel; the ranks keep their variables"
    )
    assert cells.check("place").value == "'kernel'"
    assert cells.check("%accelerate cells").stdout == "Cells run in the kernel\n"
    assert cells.check("%accelerate cells off").stdout == "Cells run in the kernel\n"
    cells.check(ON)
    assert lines(cells, "held") == ["[0] 0", "[1] 1"]
    cells.check("%load_ext notebook_accel\n%unload_ext notebook_accel\n%load_ext notebook_accel")
    assert cells.value("place") == "kernel"


# Names


@pytest.mark.versions
def test_another_number_of_ranks_can_have_the_names_of_the_first(cells: Notebook):
    """Starts two more groups of ranks."""
    cells.check("""
        import torch
        from notebook_accel import Accelerator
        accelerator, weights = Accelerator(), torch.ones(3) * (rank + 5)
        part = weights[:2]
        model = accelerator.prepare(torch.nn.Linear(1, 1))
        numbers = (n for n in range(3))
        def double():
            return weights * 2
        def failing():
            return missing
        class Point:
            x = 1
        point = Point()
    """)
    found = cells.check("%accelerate cells on -n 3 --keep")
    assert "3 new ranks instead of 2 have the variables of rank 0: " in found.text
    cells.check("import gc; gc.collect()")
    assert "Not kept: accelerator, model (prepared for the old ranks); numbers (" in found.text
    assert lines(cells, "world_size") == ["[0-2] 3"]
    assert lines(cells, "part[:] = 1; double()") == ["[0-2] tensor([ 2.,  2., 10.])"]
    assert lines(cells, "isinstance(point, Point), rank") == [f"[{rank}] (True, {rank})" for rank in range(3)]
    assert "name 'model' is not defined" in fails(cells, "model").error_text
    assert "return missing" in fails(cells, "failing()").traceback
    found = fails(cells, "%accelerate cells on -n 3 --keep")
    assert found.error_text.startswith("--keep is for a change of the number of ranks with -n, but 3 ranks are running")
    found = cells.check("%accelerate restart --keep")
    assert "3 new ranks instead of 3 have the variables of rank 0: " in found.text
    assert lines(cells, "part.sum()") == ["[0-2] tensor(2.)"]
    cells.check("class Stubborn:\n    def __setstate__(self, state): raise ValueError('not here')\n    x = 1")
    cells.check("stubborn = Stubborn()\nstubborn.x = 2")
    found = fails(cells, "%%accelerate -n 2 --keep\nworld_size")
    assert "the new ranks can't load the variables, so the old ranks are kept: " in found.error_text
    assert lines(cells, "%%accelerate -n 3 --keep\nworld_size") == ["[0-2] 3"]  # as when all cells run again


def test_names_of_the_ranks_are_completed_before_those_of_the_kernel(cells: Notebook):
    """Takes long since IPython loads jedi for its first completion."""
    cells.check("import torch\nlayer_on_ranks = torch.nn.Linear(2, 2)\ntable = {'column_a': 1}")
    cells.check("%%here\nlayer_in_kernel = 'text'")
    assert {"layer_on_ranks", "layer_in_kernel"} <= set(completed(cells, "x = layer_"))
    assert any(match.endswith("weight") for match in completed(cells, "layer_on_ranks.wei"))
    assert any(match.endswith("is_floating_point") for match in completed(cells, "layer_on_ranks.weight.is_fl"))
    assert any("column_a" in match for match in completed(cells, "table['col"))
    assert any(match.endswith("upper") for match in completed(cells, "layer_in_kernel.upp"))
    assert {"%accelerate", "%autoawait"} <= set(completed(cells, "%a"))
    cells.check("%accelerate cells off")
    assert "layer_on_ranks" not in completed(cells, "x = layer_")


def test_attributes_are_those_of_the_ranks(cells: Notebook):
    cells.check("place = [rank]")
    names = completed(cells, "place.")
    assert any(match.endswith("append") for match in names)  # a list, as on the ranks
    assert not any(match.endswith("upper") for match in names)  # a text, as in the kernel
    assert not any(match.endswith("append") for match in completed(cells, "%%here\nplace.app"))


@pytest.mark.versions
def test_help_is_that_of_the_ranks(cells: Notebook):
    cells.check("def explained(a, b=rank):\n    'What it does.'\n    return a")
    assert "What it does." in inspected(cells, "explained(")
    assert "return a" in inspected(cells, "explained", 1)
    cells.check("place = 'on a rank'")
    assert "String form: on a rank" in inspected(cells, "place")
    cells.check("%%here\nonly_here = 'in the kernel'")
    assert "String form: in the kernel" in inspected(cells, "only_here")
    cells.check("%accelerate cells off")
    assert inspected(cells, "explained") == ""


def test_a_rank_that_is_busy_or_dead_does_not_hold_up_the_tab_key(cells: Notebook):
    cells.check("class Slow:\n    def __dir__(self): time.sleep(60); return ['late']\nslow_object = Slow()")
    began = time.monotonic()
    completed(cells, "slow_object.")
    assert time.monotonic() - began < 30  # rather than 60
    assert lines(cells, "world_size") == ["[0-1] 2"]
    cells.check("%%accelerate --no-block --ranks 0\nimport time\ntime.sleep(60)")
    assert "place" in completed(cells, "x = plac")
    assert "slow_object" not in completed(cells, "slow_ob")
    cells.check("%accelerate interrupt")
    assert "slow_object" in completed(cells, "slow_ob")
    pids = sorted(lines(cells, "import os\nprint(os.getpid())"))
    os.kill(int(pids[0].split()[1]), signal.SIGKILL)
    fails(cells, "rank")
    assert "slow_object" in completed(cells, "slow_ob")  # of rank 1
    os.kill(int(pids[1].split()[1]), signal.SIGKILL)
    fails(cells, "%%rank 1\nrank")
    assert "place" in completed(cells, "x = plac")
    cells.check("%accelerate restart")
    assert lines(cells, "world_size") == ["[0-1] 2"]
