"""`%%accelerate`: cells on ranks that live on, in a real kernel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from notebook_accel.launch.show.display_content import compose
from tests.kernel.conftest import end
from tests.live_notebook import Cell, Notebook, wait_until

pytestmark = pytest.mark.early

IMPORTS = "import torch, time, os\nimport torch.distributed as dist\n"


class Cells:
    """A notebook that runs cells on two ranks."""

    def __init__(self, notebook: Notebook) -> None:
        self.notebook = notebook

    def __call__(self, body: str, options: str = "") -> Cell:
        """Runs a cell that must not fail."""
        return self.notebook.check(cell(body, options))

    def fails(self, body: str, options: str = "") -> Cell:
        found = self.notebook.run(cell(body, options))
        assert found.error is not None, f"it did not fail: {found}"
        return found

    def lines(self, body: str, options: str = "") -> list[str]:
        return self(body, options).lines

    def interrupt(self, body: str, when: str = "ready") -> Cell:
        """Interrupts a cell once it says so."""
        found = self.notebook.read_until(self.notebook.begin(cell(body)), when)
        self.notebook.interrupt()
        return self.notebook.finish(found)


def cell(body: str, options: str = "") -> str:
    return f"%%accelerate {options}\n{body}"


@pytest.fixture(scope="module")
def kernel() -> Iterator[Notebook]:
    notebook = Notebook()
    notebook.check("import notebook_accel")
    notebook.check(cell(IMPORTS, "-n 2"))
    notebook.merge_within(30)
    yield notebook
    end(notebook)


@pytest.fixture
def cells(kernel: Notebook) -> Cells:
    """Two ranks that have nothing but what the imports above have left, and what other tests have."""
    if kernel.run(cell("assert dist.get_world_size() == 2")).error is not None:
        kernel.check("%accelerate restart")
        kernel.check(cell(IMPORTS, "-n 2"))
    return Cells(kernel)


# Names and values


@pytest.mark.smoke
@pytest.mark.versions
def test_names_live_on(cells: Cells):
    cells("mine = rank + 1")
    assert cells.lines("mine") == ["[0] 1", "[1] 2"]


def test_a_line_that_a_cell_has_not_ended_is_shown_at_its_end(cells: Cells):
    assert cells.lines("print('so far', end='')") == ["[0-1] so far"]
    cells.fails("print('so far', end='')\n1 / 0")
    assert cells.notebook.check("%accelerate logs 1").lines[-1] == "[1] so far"


def test_equal_values_are_shown_once(cells: Cells):
    assert cells.lines("world_size, str(device)") == ["[0-1] (2, 'cpu')"]


def test_a_cell_without_a_value_shows_nothing(cells: Cells):
    found = cells("x = 3")
    assert found.text == ""
    assert found.value is None


@pytest.mark.versions
def test_rich_values_are_those_of_the_first_rank(cells: Cells):
    body = """
class Rich:
    def __repr__(self): return "plain"
    def _repr_html_(self): return f"<b>{rank}</b>"
Rich()"""
    assert cells(body).bundles == [{"text/plain": "plain", "text/html": "<b>0</b>"}]
    assert cells("Rich()", "--show 1").in_order() == ["<b>1</b>"]


@pytest.mark.versions
def test_rich_values_and_displays_of_all_ranks_are_labeled_and_in_order(cells: Cells):
    cells("from IPython.display import HTML")
    body = """
print("a")
display(HTML("same"))
if rank == 0: time.sleep(0.2)
display(HTML(f"{rank}"))
print("b")
HTML("last")"""
    both = compose({f"[{rank}]": ({"text/html": f"{rank}"}, {}) for rank in (0, 1)})["text/html"]
    shown = ["[0-1] a", "same", both, "[0-1] b", "last"]
    assert cells(body, "--show all").in_order() == shown
    assert cells("HTML(f'{rank}')", "--show all").in_order() == [both]


IN_TURN = """
from notebook_accel import events

def wait_for(step):
    while not os.path.exists(f"{late} {rank} {step}"): time.sleep(0.01)

wait_for("begin")
print("a")
display(HTML("<i>b</i>"))
events.emit(events.PhaseChanged(events.Phase.RUNNING, "has displayed"))  # comes after what it has displayed
wait_for("go on")
print("c")
"""


@pytest.mark.versions
@pytest.mark.parametrize("late", [0, 1])
def test_what_is_displayed_in_between_keeps_its_place(cells: Cells, late: int):
    """One rank has written all of its lines before the other begins."""
    cells("from IPython.display import HTML")
    found = cells(f"late = {late}{IN_TURN}", "--no-block")
    cells.notebook.check("job = _")

    def step(rank: int, name: str, until: str) -> None:
        cells.notebook.check(f"open('{late} {rank} {name}', 'w').close()")
        wait_until(lambda: cells.notebook.value(f"bool({until})"), what=f"rank {rank} does not {name}")

    for rank in (1 - late, late):
        step(rank, "begin", f"job.ranks[{rank}].detail == 'has displayed'")
        step(rank, "go on", f"job.ranks[{rank}].written == 2")
    cells.notebook.check("job.result(60)")
    cells.notebook.read_until(found, "[0-1] c")
    displayed = [each["text/html"] for each in found.bundles]
    assert [html for html in displayed if html.startswith("<i>")] == ["<i>b</i>"]  # a slow job also has its table
    assert found.lines == ["[0-1] a", "[0-1] c"]


@pytest.mark.versions
def test_figures_are_shown(cells: Cells):
    body = "%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.plot([rank, 1]);"
    assert any("image/png" in each for each in cells(body).bundles)


@pytest.mark.versions
def test_await_and_the_syntax_of_ipython_work(cells: Cells):
    cells.notebook.check("greeting = 'hello'")
    assigned = "!echo $greeting {world_size}"
    if not cells.notebook.value("'getoutput' in get_ipython().transform_cell('found = !echo')"):
        assigned = (
            f"get_ipython().getoutput({assigned[1:]!r})"  # IPython 7 can't assign what a command prints on Python 3.12
        )
    body = f"""
import asyncio
await asyncio.sleep(0)
found = {assigned}
%time timed = len(greeting)
found[0], timed"""
    assert cells.lines(body)[-1] == "[0-1] ('hello 2', 5)"


def test_some_ranks_can_run_a_cell_alone(cells: Cells):
    cells("alone = 'no'")
    cells.notebook.check(cell("alone = 'yes'", "--no-block --ranks 1"))
    cells.notebook.check("job = _")
    phases = "job.wait(60), [state.phase.value for state in job.ranks]"
    assert cells.notebook.value(phases) == (True, ["idle", "done"])
    assert cells.lines("alone") == ["[0] 'no'", "[1] 'yes'"]


@pytest.mark.versions
def test_values_come_back_by_rank(cells: Cells):
    cells("torch.ones(2) * rank", "--as found")
    assert cells.notebook.value("[each.tolist() for each in found]") == [[0.0, 0.0], [1.0, 1.0]]


def test_a_value_that_the_notebook_cannot_unpickle_is_an_error_of_the_cell(cells: Cells):
    cells("class Odd:\n    def __reduce__(self): return int, ('no number',)")
    failed = cells.fails("Odd()", "--as odd").error_text
    assert "rank 0 returned a value that can't be unpickled in the notebook: ValueError: invalid literal" in failed
    assert "notebook_accel/" not in failed
    found = cells.notebook.check(cell("Odd()", "--no-block --as odd"))
    cells.notebook.check("job = _")
    assert cells.notebook.value("job.wait(60), job.status.value") == (True, "failed")
    cells.notebook.read_until(found, "]: rank 0 returned a value that can't be unpickled")
    assert cells.lines("1") == ["[0-1] 1"]


@pytest.mark.versions
def test_a_cell_can_leave_the_notebook_free(cells: Cells):
    cells.notebook.check(cell("while not os.path.exists('go'): time.sleep(0.01)\n'went'", "--no-block --as later"))
    cells.notebook.check("job = _")
    assert "still runs on these ranks" in cells.fails("1").error_text
    cells.notebook.check("open('go', 'w').close()")
    assert cells.notebook.value("job.result(60)") == ["went", "went"]
    assert cells.notebook.value("later") == ["went", "went"]


@pytest.mark.versions
def test_a_cell_that_shows_a_panel_can_be_attached_to(cells: Cells):
    cells.notebook.check("from notebook_accel import attach, jobs")
    cells.notebook.check("before = {each.id for each in jobs()}")
    cells("print('over at once')")
    bar = "from tqdm import trange\nfor step in trange(3, mininterval=0): print('step', step)"
    body = f"{bar}\nwhile True: time.sleep(0.01)"
    found = cells.notebook.check(cell(body, "--no-block"))
    cells.notebook.check("job = _")
    cells.notebook.read_until(found, "step 2")
    new = "len({each.id for each in jobs()} - before)"  # of twenty, as many as are listed
    wait_until(lambda: cells.notebook.value(new) == 1, what="it is not recorded")
    assert cells.notebook.value("jobs()[0].name == job.name, jobs()[0].status.value") == (True, "running")
    again = cells.notebook.check("same = attach()")
    cells.notebook.read_until(again, "[0-1] step 2")
    assert cells.notebook.value("same is job, job.cancel(), job.wait(60)") == (True, True, True)
    cells.notebook.read_until(again, "on 2 ranks: cancelled")
    assert "In[" in cells.notebook.check("str(jobs()[0])").value
    assert "cancelled" in cells.notebook.check("attach(job.id)").displays[0]


# The notebook's variables


@pytest.mark.versions
def test_variables_are_sent_when_they_are_read(cells: Cells):
    cells.notebook.check("sent = [1, 2]")
    assert cells.lines("sent") == ["[0-1] [1, 2]"]
    cells.notebook.check("sent = [4]")
    assert cells.lines("sent") == ["[0-1] [4]"]


@pytest.mark.versions
def test_what_has_changed_in_place_is_sent_again(cells: Cells):
    cells.notebook.check("""
    import numpy as np
    opts, rows = {'lr': .1}, np.zeros(3)
    class Config: size = 1
    def make(held): return lambda: held['rate']
    held = {'rate': 1}
    rate_of, read = make(held), lambda: opts['lr']
    """)
    body = "opts, rows.tolist(), Config.size, rate_of(), read()"
    assert cells.lines(body) == ["[0-1] ({'lr': 0.1}, [0.0, 0.0, 0.0], 1, 1, 0.1)"]
    cells.notebook.check("opts['lr'] = .001; rows += 1; Config.size = 2; held['rate'] = 3")
    assert cells.lines("read()") == ["[0-1] 0.001"]
    changed = cells(body)
    assert changed.lines == ["[0-1] ({'lr': 0.001}, [1.0, 1.0, 1.0], 2, 3, 0.001)"]
    assert changed.stderr == ""


def test_a_tensor_or_model_that_has_changed_in_place_is_sent_again(cells: Cells):
    cells.notebook.check(
        "import torch\nw, large, layer = torch.zeros(1), torch.zeros(2_000_000), torch.nn.Linear(1, 1)"
    )
    body = "w.item(), large[-1].item(), layer.training, layer.bias.item() == 5"
    assert cells.lines(body) == ["[0-1] (0.0, 0.0, True, False)"]
    cells.notebook.check("w += 7\nlarge[1_999_999] = 3\nlayer.eval().bias.data.fill_(5)")
    changed = cells(body)
    assert changed.lines == ["[0-1] (7.0, 3.0, False, True)"], changed.stderr


def test_one_element_of_a_large_array_is_sent_again_where_a_cell_has_named_the_array(cells: Cells):
    cells.notebook.check("import numpy as np\nbig = np.zeros(2_000_000)\ndef change(): big[123_456] += 1")
    assert cells.lines("int(big[123_456])") == ["[0-1] 0"]
    cells.notebook.check("big[123_456] = 1")
    assert cells.lines("int(big[123_456])") == ["[0-1] 1"]
    cells.notebook.check("change()")
    assert cells.lines("int(big[123_456])") == ["[0-1] 2"]


def test_a_copy_that_ranks_have_changed_is_kept_and_named(cells: Cells):
    cells.notebook.check("seen, plain = [], []")
    assert cells.lines("seen.append(rank); seen, plain") == ["[0] ([0], [])", "[1] ([1], [])"]
    assert cells("seen").stderr == "", "the notebook has not changed it"
    cells.notebook.check("seen.append('notebook'); plain.append('notebook')")
    found = cells("seen, plain")
    assert found.lines == ["[0] ([0], ['notebook'])", "[1] ([1], ['notebook'])"]
    assert "`seen` has changed in the notebook, but ranks 0-1 have changed their own copy" in found.stderr
    assert "`%accelerate push seen`" in found.stderr
    assert "`plain`" not in found.stderr
    assert cells("seen").stderr == "", "it is said once"
    cells.notebook.check("%accelerate push seen")
    assert cells.lines("seen") == ["[0-1] ['notebook']"]
    cells.notebook.check("seen.append(2)")
    assert cells.lines("seen") == ["[0-1] ['notebook', 2]"]


def test_where_one_rank_has_changed_its_copy_no_rank_is_sent_another(cells: Cells):
    cells.notebook.check("counts = {'a': 0}")
    cells("if rank: counts['a'] += 1")
    cells.notebook.check("counts['a'] = 9")
    found = cells("counts")
    assert found.lines == ["[0] {'a': 0}", "[1] {'a': 1}"]
    assert "rank 1 has changed its own copy" in found.stderr
    assert "--ranks 1" in found.stderr
    cells.notebook.check("%accelerate pull counts --ranks 1")
    assert cells.lines("counts") == ["[0-1] {'a': 1}"]


def test_one_element_of_a_large_array_that_a_rank_has_changed_is_not_lost(cells: Cells):
    cells.notebook.check("import numpy as np\nsums = np.zeros(2_000_000)")
    cells("sums[123_456] = rank")
    cells.notebook.check("sums += 5")
    found = cells("int(sums[123_456]), int(sums[0])")
    assert found.lines == ["[0] (0, 0)", "[1] (1, 0)"]
    assert "rank 1 has changed its own copy" in found.stderr


def test_what_a_rank_has_bound_in_a_failed_cell_is_its_own(cells: Cells):
    cells.notebook.check("state = ['notebook']")
    cells("state")
    cells.fails("state = ['rank']\n1 / 0")
    cells.notebook.check("state.append(1)")
    found = cells("state")
    assert found.lines == ["[0-1] ['rank']"]
    assert "ranks 0-1 have changed their own copy" in found.stderr


def test_what_cannot_be_compared_is_said_once(cells: Cells):
    cells.notebook.check("many = list(range(2_000_000))")
    assert cells.lines("len(many)") == ["[0-1] 2000000"]
    assert cells("len(many)").stderr == "", "no cell of the notebook has named it"
    cells.notebook.check("many.append(1)")
    found = cells("len(many)")
    assert found.lines == ["[0-1] 2000000"]
    assert "can't tell quickly whether `many` has changed" in found.stderr
    cells.notebook.check("many.append(1)")
    assert cells("len(many)").stderr == ""
    cells.notebook.check("%accelerate push many")
    assert cells.lines("len(many)") == ["[0-1] 2000002"]


def test_a_model_and_its_optimizer_are_sent_again_together(cells: Cells):
    cells.notebook.check("import torch\nnet = torch.nn.Linear(1, 1)\nsteps = torch.optim.SGD(net.parameters(), lr=.1)")
    same = "net.weight is steps.param_groups[0]['params'][0]"
    assert cells.lines(f"net, steps\n{same}") == ["[0-1] True"]
    cells.notebook.check("net.eval();")
    assert cells.lines("net.training") == ["[0-1] False"]
    assert cells.lines(same) == ["[0-1] True"]


def test_what_ranks_have_bound_themselves_stays_theirs(cells: Cells):
    cells.notebook.check("theirs = 'notebook'")
    cells("theirs = rank")
    assert cells.lines("theirs") == ["[0] 0", "[1] 1"]
    assert cells.notebook.value("theirs") == "notebook"


def test_what_ranks_and_the_notebook_have_both_assigned_is_named(cells: Cells):
    cells("speed = 0.1")
    cells.notebook.check("speed = 0.2\ndef fast(): return speed")
    found = cells("fast()")
    assert found.lines == ["[0-1] 0.1"]
    assert "`speed` has been assigned in the notebook, but ranks 0-1 have assigned their own, so" in found.stderr
    assert "`%accelerate push speed`" in found.stderr
    assert cells("speed").stderr == "", "it is said once"
    cells.notebook.check("%accelerate push speed")
    assert cells.lines("speed") == ["[0-1] 0.2"]


@pytest.mark.parametrize("fails", [False, True])
def test_what_ranks_have_made_of_a_variable_is_not_replaced_unasked(cells: Cells, fails: bool):
    cells.notebook.check("level = 0")
    body = "level += 1 + rank"
    cells.fails(f"{body}\n1 / 0") if fails else cells(body)
    cells.notebook.check("level = 5")
    found = cells("level")
    assert found.lines == ["[0] 1", "[1] 2"]
    assert "`level` has been assigned in the notebook, but ranks 0-1 have assigned their own, so" in found.stderr
    cells.notebook.check("%accelerate push level")
    assert cells.lines("level") == ["[0-1] 5"]
    cells.notebook.check("level = 6")
    assert cells.lines("level") == ["[0-1] 6"]


def test_what_a_failed_cell_has_bound_stays_the_ranks(cells: Cells):
    cells.notebook.check("half = 'notebook'")
    cells.fails("half = 'rank'\n1 / 0")
    assert cells.lines("half") == ["[0-1] 'rank'"]


def test_a_variable_that_could_not_be_loaded_is_sent_again(cells: Cells, tmp_path: Path):
    cells.notebook.check(f"""
    import os
    def load():
        if os.path.exists({str(tmp_path / "broken")!r}): raise ValueError("not today")
        return "loaded"
    class Awkward:
        def __reduce__(self): return load, ()
    awkward = Awkward()
    """)
    (tmp_path / "broken").touch()
    assert "could not unpickle" in cells.fails("awkward").error_text
    (tmp_path / "broken").unlink()
    assert cells.lines("awkward") == ["[0-1] 'loaded'"]


def test_a_variable_that_was_still_loading_as_its_cell_was_given_up_is_sent_again(cells: Cells, tmp_path: Path):
    cells.notebook.check(f"""
    import os, time
    def load():
        open(f"{tmp_path}/begun-{{os.environ['RANK']}}", "w").close()
        while not os.path.exists("{tmp_path}/go"):
            try: time.sleep(0.01)
            except KeyboardInterrupt: pass
        if os.path.exists("{tmp_path}/broken"): raise ValueError("not today")
        return "loaded"
    class Slow:
        def __reduce__(self): return load, ()
    slow = Slow()
    """)
    (tmp_path / "broken").touch()
    cells.notebook.check(cell("slow", "--no-block"))
    wait_until(lambda: len(list(tmp_path.glob("begun-*"))) == 2)
    cells.notebook.check("job = _\njob.cancel(), job.cancel(), job.wait(60)")
    assert "still busy with a cell that was stopped" in cells.fails("1").error_text
    (tmp_path / "go").touch()
    wait_until(lambda: cells.notebook.run(cell("1")).error is None)
    (tmp_path / "broken").unlink()
    assert cells.lines("slow") == ["[0-1] 'loaded'"]


def test_ranks_take_on_the_folder_the_path_and_the_arguments_of_the_notebook_before_each_cell(
    cells: Cells, tmp_path: Path
):
    (tmp_path / "beside_the_notebook.py").write_text("VALUE = 5")
    everything = "import os, sys\n(os.getcwd(), sys.argv, sys.path)"
    before = cells.lines(everything)
    folder = str(tmp_path)
    cells.notebook.check("import os, sys\nbefore = os.getcwd(), sys.argv[:], sys.path[:]")
    try:
        cells.notebook.check(f"sys.path.insert(0, {folder!r})")
        found = cells.lines("import beside_the_notebook as found\nprint(found.VALUE, sys.path[0])")
        assert found == [f"[0-1] 5 {folder}"]
        cells.notebook.check(f"os.chdir({folder!r})")
        assert cells.lines("os.getcwd()") == [f"[0-1] {folder!r}"]
        cells.notebook.check("sys.argv.append('--more')")
        assert cells.lines("sys.argv[-1]") == ["[0-1] '--more'"]
    finally:
        cells.notebook.check("os.chdir(before[0])\nsys.argv[:], sys.path[:] = before[1:]")
    assert cells.lines(everything) == before


def test_an_object_that_the_notebook_has_let_go_of_is_freed(cells: Cells):
    cells.notebook.check("import gc, weakref, numpy as np\nheld = np.ones(3)\nheld_is = weakref.ref(held)")
    assert cells.lines("float(held.sum())") == ["[0-1] 3.0"]
    cells.notebook.check("held = None")
    assert cells.notebook.value("gc.collect() >= 0, held_is() is None") == (True, True)
    assert cells.lines("held") == []


def test_functions_go_with_all_that_they_read(cells: Cells):
    cells.notebook.check("""
    import math as m
    rate = 2
    def inner(v): return m.sqrt(v) * rate
    class Net:
        def value(self): return inner(9)
    def make(): return Net()
    """)
    assert cells.lines("make().value()") == ["[0-1] 6.0"]
    cells.notebook.check("rate = 3")
    assert cells.lines("make().value()") == ["[0-1] 9.0"]
    cells("rate = rank")
    assert cells.lines("make().value()") == ["[0] 0.0", "[1] 3.0"]


def test_objects_of_the_notebooks_classes_come_back_as_such(cells: Cells):
    cells.notebook.check("class Point:\n    def __init__(self, x): self.x = x\nstart = Point(5)")
    cells("start.x += rank\nstart", "--as points")
    assert cells.notebook.value("[type(each) is Point and each.x for each in points]") == [5, 6]


def test_a_large_array_is_shared_until_it_is_written(cells: Cells):
    cells.notebook.check("import numpy as np\nlarge = np.ones(25_000_000)")
    cells("""
import psutil
def own():
    found = psutil.Process().memory_info()
    return found.rss - found.shared
before = own()
""")
    grown = cells("float(large.sum()), own() - before < 50e6")
    assert grown.lines == ["[0-1] (25000000.0, True)"]
    cells.notebook.check("del large")
    cells("del large")


def test_a_variable_that_cannot_be_sent_is_named_with_its_line(cells: Cells):
    cells.notebook.check("import threading\nbox = {'a': threading.Lock()}")
    found = cells.fails("y = 1\nwith box['a']: pass")
    assert found.error == "PayloadError"
    assert "`box` can't be sent" in found.error_text
    assert "line 3: `with box['a']: pass`" in found.error_text
    assert "`box['a']` is a _thread.lock" in found.error_text


def test_a_name_that_the_cell_binds_first_is_not_sent(cells: Cells):
    cells.notebook.check("import threading\nlock = threading.Lock()")
    assert cells.lines("lock = 1\nlock") == ["[0-1] 1"]


# The process group


def test_ranks_can_talk_at_once(cells: Cells):
    assert cells.lines("t = torch.tensor(1 + rank)\ndist.all_reduce(t)\nint(t)") == ["[0-1] 3"]


@pytest.mark.versions
def test_an_accelerator_works_in_this_and_later_cells(cells: Cells):
    body = """
from notebook_accel import Accelerator
accelerator = Accelerator()
model = accelerator.prepare(torch.nn.Linear(2, 1))
"""
    cells(body)
    assert cells.lines("model(torch.ones(1, 2)).sum().backward()\naccelerator.num_processes") == ["[0-1] 2"]


# Errors


@pytest.mark.versions
def test_an_error_shows_the_cells_own_lines(cells: Cells):
    cells("def divide(a):\n    return a / 0")
    found = cells.fails("x = 1\ndivide(x)")
    assert found.error == "RankError"
    assert "both ranks raised ZeroDivisionError: division by zero" in found.error_text
    assert "-->    3 divide(x)" in found.error_text
    assert "-->    3     return a / 0" in found.error_text
    assert "/IPython/" not in found.traceback
    assert "notebook_accel/" not in found.traceback


@pytest.mark.versions
def test_a_cell_is_called_by_its_own_number(cells: Cells):
    number = cells.notebook.value("len(In) - 1")
    # IPython 7 calls the code of a cell `<cell line: 0>`.
    assert f"In[{number + 1}], line 2, in <" in cells.fails("1 / 0").error_text
    cells.notebook.check("def divide_here(): return 1 / 0")
    assert f"In[{number + 2}], line 1, in divide_here" in cells.fails("divide_here()").error_text


@pytest.mark.versions
def test_lines_are_counted_from_the_top_of_the_cell(cells: Cells):
    assert "-->    5 1 / 0" in cells.fails("\n\n\n1 / 0").error_text
    assert "-->    4 1 / 0" in cells.fails("\n%time 1\n1 / 0").error_text


@pytest.mark.versions
def test_a_cell_that_exits_with_success_has_succeeded(cells: Cells):
    cells("done = 1\nraise SystemExit")
    assert "The ranks keep running" in cells("exit()").stdout
    assert cells.lines("done") == ["[0-1] 1"]
    failed = cells.fails("import sys\nsys.exit(3)")
    assert "both ranks exited with status 3" in failed.error_text
    assert failed.stderr == ""


@pytest.mark.versions
def test_help_is_shown_once(cells: Cells):
    assert ["Docstring" in each for each in cells("rank?").displays] == [True]


def test_the_help_of_the_magic_is_shown_and_the_cell_is_not_run(cells: Cells):
    shown = cells.notebook.check("%%accelerate --help\nprint('here')")
    assert "--no-block" in shown.stdout
    assert "here" not in shown.stdout
    assert "expected the name of a variable" in cells.fails("1", "--as class").error_text


def test_ranks_live_on_if_others_cannot_be_started(cells: Cells, tmp_path: Path):
    cells("dear = 2")
    (tmp_path / "config.yaml").write_text("num_proceses: 2")
    cells.notebook.check(f"%env NOTEBOOK_ACCEL_CONFIG_FILE={tmp_path}/config.yaml")
    found = cells.fails("1", "-n 3")
    cells.notebook.check("import os\ndel os.environ['NOTEBOOK_ACCEL_CONFIG_FILE']")
    assert found.error == "ConfigurationError"
    assert "more than this machine can hold" in cells.fails("1", "-n 1000000").error_text
    assert cells.lines("dear") == ["[0-1] 2"]


@pytest.mark.versions
def test_a_cell_that_is_no_python_has_not_begun(cells: Cells):
    found = cells.fails("fine = 1\nno python")
    assert "line 3" in found.error_text
    assert "SyntaxError: invalid syntax" in found.error_text


@pytest.mark.versions
def test_the_source_of_what_cells_define_is_known(cells: Cells):
    cells("import inspect\ndef told(): return 1")
    assert cells.lines("inspect.getsource(told)") == ["[0-1] 'def told(): return 1\\n'"]
    cells("def told(): return 2")
    assert cells.lines("inspect.getsource(told), told()") == ["[0-1] ('def told(): return 2\\n', 2)"]


def test_one_that_fails_frees_the_others_from_a_collective(cells: Cells):
    cells("kept = rank")
    found = cells.fails("if rank == 0: raise ValueError('oh')\ndist.barrier()")
    assert "rank 0 of 2 raised ValueError: oh" in found.error_text
    assert "Rank 1 was stopped." in found.error_text
    assert found.seconds < 20
    assert cells.lines("t = torch.tensor(kept)\ndist.all_reduce(t)\nint(t)") == ["[0-1] 1"]


def test_ranks_that_stand_at_different_collectives_meet_again(cells: Cells):
    cells.fails("dist.barrier() if rank == 3 else None\nif rank: dist.isend(torch.ones(1), 0)\nraise ValueError")
    cells.fails("if rank: dist.all_reduce(torch.ones(1), async_op=True)\nraise ValueError")
    assert cells.lines("t = torch.tensor(10.0 + rank)\ndist.all_reduce(t)\nfloat(t)") == ["[0-1] 21.0"]


def test_a_dead_rank_is_named_with_the_next_step(cells: Cells):
    cells("precious = [rank]")
    found = cells.fails("if rank: os.kill(os.getpid(), 9)\ndist.barrier()")
    assert "rank 1 of 2 was killed by SIGKILL" in found.error_text
    assert "Rank 1 is gone. `%accelerate restart` starts new ranks" in found.error_text
    assert "precious" in found.error_text
    assert "rank 1 was killed by signal 9" in cells.fails("1").error_text
    assert cells.lines("precious", "--ranks 0") == ["[0] [0]"]
    cells.notebook.check("%accelerate restart")
    assert cells.lines("world_size") == ["[0-1] 2"]
    cells("import os, torch.distributed as dist\npids = [0, 0]\ndist.all_gather_object(pids, os.getpid())")
    found = cells.fails("dist.barrier() if rank else [os.kill(pid, 9) for pid in reversed(pids)]")
    assert "Ranks 0-1 are gone." in found.error_text
    cells.notebook.check("%accelerate restart")


# Interrupts

INTERRUPTED = {
    "sleeping": "print('ready')\ntime.sleep(600)",
    "computing": "print('ready')\nwhile True: torch.ones(100).sum()",
    "in a collective": "print('ready')\nif rank: time.sleep(600)\ndist.barrier()",
    "in a collective on every rank": "print('ready')\ndist.recv(torch.ones(1), 1 - rank)",
}


@pytest.mark.parametrize("body", INTERRUPTED.values(), ids=INTERRUPTED)
@pytest.mark.versions
def test_an_interrupt_keeps_ranks_and_names(cells: Cells, body: str):
    pids = cells.lines("kept = rank\nos.getpid()")
    found = cells.interrupt(body)
    assert found.error == "KeyboardInterrupt"
    assert cells.lines("os.getpid()") == pids
    assert cells.lines("t = torch.tensor(kept)\ndist.all_reduce(t)\nint(t)") == ["[0-1] 1"]


def test_an_interrupt_while_ranks_start_ends_them_and_the_next_cell_starts_others(cells: Cells):
    cells.notebook.check("""
    %accelerate stop
    import os, signal
    from notebook_accel.notebook.cells.persistent import PersistentRanks

    def interrupted(self, *args, call=PersistentRanks.call, **options):
        os.kill(os.getpid(), signal.SIGINT)
        return call(self, *args, **options)

    call, PersistentRanks.call = PersistentRanks.call, interrupted
    """)
    found = cells.notebook.run(cell("1", "-n 2"))
    cells.notebook.check("PersistentRanks.call = call")
    assert found.error == "KeyboardInterrupt"
    assert found.error_text.startswith("the ranks were interrupted while they started, and have ended; ")
    assert "notebook_accel/" not in found.traceback
    assert cells.lines("1", "-n 2")[-1] == "[0-1] 1"


def test_an_interrupt_does_not_wait_for_the_server_which_may_send_it_in_the_next_cell(cells: Cells):
    cells.notebook.check("""
    from notebook_accel.launch.engines.server_ranks import ServerRanks
    by_server, ServerRanks.signal_process = ServerRanks.signal_process, lambda *_: None
    """)
    found = cells.interrupt("print('ready', flush=True)\ntime.sleep(600)")
    cells.notebook.check("ServerRanks.signal_process = by_server")
    assert found.error == "KeyboardInterrupt"
    assert cells.lines("1") == ["[0-1] 1"]


def test_training_goes_on_after_an_interrupt(cells: Cells):
    cells("""
from torch import nn
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Linear(200, 200))
optimizer = torch.optim.Adam(model.parameters())
def train(steps, pause=0):
    for step in range(steps):
        model(torch.randn(4, 200)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 3: print("ready")
        time.sleep(pause * rank)
""")
    assert cells.interrupt("train(10**6, 0.01)").error == "KeyboardInterrupt"
    cells("train(5)")
    alike = """
mine = nn.utils.parameters_to_vector(model.parameters()).detach()
first = mine.clone()
dist.broadcast(first, 0)
bool((mine == first).all())"""
    assert cells.lines(alike) == ["[0-1] True"]


# Subcommands


def test_a_cell_of_the_kernel_that_reads_a_name_of_the_ranks_says_where_it_is(cells: Cells):
    cells("from fractions import Fraction as OnlyThere\ntold = 1")
    for name in ("OnlyThere", "told"):
        found = cells.notebook.run(name)
        assert found.error == "NameError"
        assert f"{name} is defined on the ranks: begin the cell with %%accelerate" in found.stderr
    assert "on the ranks" not in cells.notebook.run("nowhere").stderr
    cells.notebook.check("%accelerate pull told\ntold")


def test_variables_are_pushed_and_pulled(cells: Cells):
    cells.notebook.check("shared = ['notebook']")
    cells("shared = ['rank', rank]")
    cells.notebook.check("%accelerate pull shared --ranks 0-1")
    assert cells.notebook.value("shared") == [["rank", 0], ["rank", 1]]
    cells.notebook.check("shared = 5\n%accelerate push shared")
    assert cells.lines("shared") == ["[0-1] 5"]
    cells.notebook.check("%accelerate pull shared")
    assert cells.notebook.value("shared") == 5
    assert "rank 0 has no variable nowhere" in cells.notebook.run("%accelerate pull nowhere").error_text


@pytest.mark.versions
def test_tab_completes_variables_and_ranks(cells: Cells):
    cells("on_ranks = 1")
    cells.notebook.check("%config IPCompleter.use_jedi = False\non_notebook = 1")

    def found(code: str) -> list[str]:
        matches: list[str] = cells.notebook.client.complete(code, reply=True, timeout=20)["content"]["matches"]
        return matches

    assert found("%accelerate pull on_") == ["on_ranks"]
    assert found("%accelerate push on_") == ["on_notebook"]
    assert found("%accelerate pull on_ranks --r") == ["--ranks"]
    assert found("%accelerate debug ") == found("%accelerate logs ") == ["0", "1"]


def test_the_last_lines_of_a_rank_are_kept(cells: Cells):
    cells("print('said by', rank)")
    assert cells.notebook.check("%accelerate logs 1").lines[-1] == "[1] said by 1"


def test_a_cell_whose_lines_are_too_many_for_the_notebook_is_recorded_with_all(cells: Cells):
    found = cells("for number in range(3000): print(number if rank else 'same')")
    cells.notebook.check("from notebook_accel import attach")
    left_out = next(text for text in found.displays if "left out here" in text)
    where = left_out.partition("; ")[2].partition(" returns")[0]
    lines = cells.notebook.value(where).splitlines()
    assert [line for line in lines if line.startswith("[1]")] == [f"[1] {number}" for number in range(3000)]
    assert lines.count("[0] same") == 3000


@pytest.mark.versions
def test_a_cell_in_the_background_is_interrupted(cells: Cells):
    cells.notebook.check(cell("time.sleep(600)", "--no-block"))
    cells.notebook.check("job = _")
    cells.notebook.check("%accelerate interrupt")
    assert cells.notebook.value("job.status.value") == "cancelled"
    assert cells.lines("1") == ["[0-1] 1"]


def test_a_background_cell_for_which_the_system_grants_no_thread_leaves_the_ranks_free(cells: Cells):
    cells.notebook.check("""
    import threading
    start = threading.Thread.start

    def refuse(thread):
        if thread.name.startswith("accelerate "):
            raise RuntimeError("can't start new thread")
        start(thread)

    threading.Thread.start = refuse
    """)
    found = cells.fails("1", "--no-block")
    cells.notebook.check("threading.Thread.start = start")
    assert found.error == "LaunchError"
    assert found.error_text.startswith("what runs in the background needs a thread: can't start new thread: ")
    assert cells.lines("1") == ["[0-1] 1"]


def test_ranks_that_run_a_cell_in_the_background_can_be_stopped(cells: Cells):
    cells.notebook.check(cell("time.sleep(600)", "--no-block"))
    cells.notebook.check("job = _")
    cells.notebook.check("%accelerate stop")
    assert cells.notebook.run("job.result(60)").error == "JobCancelledError"


@pytest.mark.versions
def test_stacks_show_where_each_rank_is(cells: Cells):
    body = "def pause(): time.sleep(600)\nif rank: pause()\ndist.recv(torch.ones(1), 1)"
    cells.notebook.check(cell(body, "--no-block"))

    def stacks() -> str:
        return str(cells.notebook.check("%accelerate stacks").value)

    wait_until(lambda: "pause" in stacks() and "recv" in stacks(), what=stacks)
    of_first, of_second = stacks().split("rank 1 ")
    assert "-->    4 dist.recv(torch.ones(1), 1)" in of_first
    assert "-->    3 if rank: pause()" in of_second
    assert "-->    2 def pause(): time.sleep(600)" in of_second
    cells.notebook.check("%accelerate interrupt")
    assert "no cell runs" in cells.notebook.check("%accelerate stacks").stdout


def test_what_live_ranks_do_not_take_on_is_said(cells: Cells):
    cells("dear = 1")
    said = cells.notebook.check("%accelerate -n 3 --env COLOR=red").stderr
    assert "the 2 ranks of %%accelerate keep the settings they were started with: num_processes=2, not 3; env." in said
    assert "`%accelerate restart` applies the new settings; these variables will be lost: dear" in said
    assert cells.notebook.check("%accelerate -n 2 --reset").stderr == ""
    cells.notebook.check("%accelerate -n 1\n%accelerate restart")
    assert cells.lines("world_size") == ["1"]
    cells.notebook.check("%accelerate --reset")
    cells(IMPORTS, "-n 2")


def test_another_number_of_ranks_starts_them_anew(cells: Cells):
    found = cells("world_size", "-n 1")
    assert found.lines == ["1"]
    assert "starting 1 rank instead of 2" in found.stderr
    cells.notebook.check("%accelerate stop\n%accelerate -n 2\n%accelerate --reset")
    chosen = cells(IMPORTS)
    assert "(change with -n)" in chosen.stdout
    assert chosen.stderr == "", "a number that was chosen is no warning, which front ends draw in red"
    cells(IMPORTS, "-n 2")


def answer(notebook: Notebook, lines: list[str], prompt: str = "rank 1 (Pdb)") -> None:
    """Types lines, each when it is asked for."""
    for line in lines:
        asked = notebook.client.get_stdin_msg(timeout=20)
        assert asked["content"]["prompt"].startswith(prompt)
        notebook.client.input(line)


@pytest.mark.versions
def test_the_frame_that_has_failed_can_be_looked_into(cells: Cells):
    cells.fails("def inner(secret):\n    raise ValueError(secret)\nouter = 'seen'\nif rank: inner(40 + rank)")
    found = cells.notebook.begin("%debug")  # on the rank that has failed
    answer(cells.notebook, ["p secret + 1", "up", "p outer", "q"])
    cells.notebook.finish(found)
    assert found.error is None
    assert "42" in found.stdout
    assert "'seen'" in found.stdout
    told = cells.notebook.check("%accelerate debug 1 p {'a b': secret}['a b'] ;; up ;; outer").lines
    assert [line for line in told if ">" not in line] == ["[1] 41", "[1] 'seen'"]
    assert told[0].startswith("[1] > In["), told
    assert cells.lines("outer") == ["[0-1] 'seen'"]


@pytest.mark.versions
def test_a_breakpoint_stops_one_rank_while_the_others_wait(cells: Cells):
    found = cells.notebook.begin(cell("value = 1\nif rank: breakpoint()\ndist.barrier()\nvalue"))
    answer(cells.notebook, ["value = 7", "c"])
    cells.notebook.finish(found)
    assert found.error is None, found.traceback
    assert found.lines[-2:] == ["[0] 1", "[1] 7"]


@pytest.mark.versions
def test_a_rank_can_ask_the_user(cells: Cells):
    cells.notebook.check("notebook_accel.set_view('text')")
    body = "time.sleep(1.2)\nsaid = input('and now? ') if rank else 'nothing'\nsaid"
    found = cells.notebook.begin(cell(body))
    asked = cells.notebook.client.get_stdin_msg(timeout=20)
    assert asked["content"]["prompt"] == "[1] and now? "
    cells.notebook.read_until(found, "rank 1  running   waits for your input")
    cells.notebook.client.input("go on")
    cells.notebook.check("notebook_accel.set_view(None)")
    cells.notebook.finish(found)
    assert found.lines == ["[0] 'nothing'", "[1] 'go on'"]
    cells.notebook.check(cell("input()", "--no-block"))
    assert "there is nobody to ask" in cells.notebook.run("_.result(60)").error_text


@pytest.mark.versions
def test_a_question_can_be_interrupted(cells: Cells):
    found = cells.notebook.begin(cell("left = 'here'\nif rank: input('well? ')"))
    assert cells.notebook.client.get_stdin_msg(timeout=20)["content"]["prompt"] == "[1] well? "
    cells.notebook.interrupt()
    cells.notebook.finish(found)
    assert found.error == "KeyboardInterrupt"
    assert cells.lines("left") == ["[0-1] 'here'"]


# Growth


@pytest.mark.versions
def test_a_restart_leaves_no_pipe_behind(cells: Cells):
    cells.notebook.check("""
    import os
    def pipes():
        paths = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        return sum(os.path.realpath(path).rpartition("/")[2].startswith("pipe:") for path in paths)
    """)
    cells("1")
    before = cells.notebook.value("pipes()")
    assert before >= 4, "two of each rank"
    cells.notebook.check("%accelerate restart")
    assert cells.notebook.value("pipes()") == before


def test_many_cells_leave_nothing_behind(cells: Cells):
    notebook = cells.notebook
    notebook.check("""
    import gc, os, psutil
    def run_many(count):
        for number in range(count):
            get_ipython().run_cell_magic("accelerate", "", f"number = {number % 7}\\nnumber")
    def held():
        gc.collect()
        ranks = [psutil.Process(each) for each in pids]
        own = psutil.Process()
        return [(each.num_fds(), each.memory_full_info().uss) for each in (own, *ranks)]
    """)
    cells("os.getpid()", "--as pids")
    notebook.check("run_many(50)\nbefore = held()")
    notebook.check("run_many(300)", timeout=100)
    grown: list[tuple[int, int]] = []

    def is_left() -> bool:
        """Whether something is; what a rank lets go of once it has answered may be there for a moment."""
        grown[:] = notebook.value("[(b[0] - a[0], b[1] - a[1]) for a, b in zip(before, held())]")
        return any(descriptors > 0 or memory >= 3e6 for descriptors, memory in grown)

    wait_until(lambda: not is_left(), what=lambda: f"descriptors and bytes are left: {grown}")


@pytest.mark.parametrize("end", ["raise ValueError('1, ' * 6_000_000)", "import sys; sys.exit('1, ' * 6_000_000)"])
def test_a_cell_may_fail_with_a_text_of_any_length(cells: Cells, end: str) -> None:
    failed = cells.fails(f"kept = 1\n{end}")
    assert failed.error == "RankError"
    assert " characters left out] … " in failed.traceback
    assert len(failed.traceback) < 500_000
    assert cells.lines("print(kept)") == ["[0-1] 1"]
