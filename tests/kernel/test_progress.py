"""What a launched function's progress shows, from real kernels."""

from __future__ import annotations

import pytest

from tests.live_notebook import Notebook, wait_until

SETUP = """
import asyncio
from notebook_accel import report, set_view
import tqdm as tqdm_package
from tqdm import tqdm, trange
from tqdm.auto import tqdm as auto_tqdm
from tqdm.asyncio import tqdm as asyncio_tqdm

class Mine(tqdm):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **{"desc": "mine", **kwargs})

def told(job):
    return [[(bar.description, bar.n, bar.total, bar.closed) for bar in state.bars.values()] for state in job.ranks]

def run(function, size=2, **options):
    job = notebook_launcher(function, num_processes=size, block=False, **options)
    job.result(timeout=50)
    return job
"""
USES = {
    "captured": "for _ in tqdm(range(5), desc='d'): pass",
    "the module": "for _ in tqdm_package.tqdm(range(5), desc='d'): pass",
    "imported in the rank": "from tqdm import tqdm as t\nfor _ in t(range(5), desc='d'): pass",
    "trange": "for _ in trange(5, desc='d'): pass",
    "tqdm.trange": "for _ in tqdm_package.trange(5, desc='d'): pass",
    "auto": "for _ in auto_tqdm(range(5), desc='d'): pass",
    "autonotebook": "from tqdm.autonotebook import tqdm as t\nfor _ in t(range(5), desc='d'): pass",
    "notebook": "from tqdm.notebook import tqdm as t\nfor _ in t(range(5), desc='d'): pass",
    "notebook's trange": "from tqdm.notebook import trange as t\nfor _ in t(5, desc='d'): pass",
    "rich": "from tqdm.rich import tqdm as t\nfor _ in t(range(5), desc='d'): pass",
    "gui": "from tqdm.gui import tqdm as t\nfor _ in t(range(5), desc='d'): pass",
    "asyncio": "async def go():\n    async for _ in asyncio_tqdm(range(5), desc='d'): pass\nasyncio.run(go())",
    "asyncio's gather": "async def go():\n    await asyncio_tqdm.gather(*map(asyncio.sleep, [0] * 5), desc='d')\n"
    "asyncio.run(go())",
    "contrib's tenumerate": "from tqdm.contrib import tenumerate\nfor _ in tenumerate(range(5), desc='d'): pass",
    "contrib's thread_map": "from tqdm.contrib.concurrent import thread_map\nthread_map(abs, range(5), desc='d')",
    "a class of the user's": "for _ in Mine(range(5), desc='d'): pass",
    "updated by hand": "with tqdm(total=5, desc='d') as bar:\n    for _ in range(5): bar.update()",
    "refreshed by hand": "bar = tqdm(total=5, desc='d')\nfor n in range(6): bar.n = n; bar.refresh()\nbar.close()",
    "to standard output": "for _ in tqdm(range(5), 'd', None, True, sys.stdout): pass",
    "disabled where there is no terminal": "for _ in tqdm(range(5), desc='d', disable=None): pass",
    "never closed": "bar = tqdm(range(5), desc='d')\nfor _ in bar: pass\ndel bar",
}


@pytest.fixture
def prepared(notebook: Notebook) -> Notebook:
    notebook.check(SETUP)
    return notebook


def define(code: str) -> str:
    return "def work():\n" + "\n".join(f"    {line}" for line in code.splitlines())


@pytest.mark.versions
def test_bars_are_told_and_print_nothing(prepared: Notebook):
    uses = [define(code.replace("'d'", repr(name))) + "\nwork()" for name, code in USES.items()]
    prepared.check(define("\n".join(uses)))
    cell = prepared.check("job = run(work)")
    assert cell.stdout + cell.stderr == ""
    assert prepared.value("told(job)") == [[(name, 5, 5, True) for name in USES]] * 2


def test_a_disabled_bar_is_not_told(prepared: Notebook):
    prepared.check(define("for _ in tqdm(range(5), disable=True): pass"))
    assert prepared.value("told(run(work))") == [[], []]


@pytest.mark.smoke
@pytest.mark.versions
def test_nested_bars_are_told_with_their_depth(prepared: Notebook):
    prepared.check(
        define("for _ in trange(2, desc='outer'):\n    for _ in trange(3, desc='inner', leave=False): time.sleep(0.1)")
    )
    prepared.check("job = notebook_launcher(work, num_processes=1, block=False)")
    seen = prepared.value("""
    seen = set()
    while not job.wait(0.02):
        seen |= {(bar.description, bar.depth) for bar in list(job.ranks[0].bars.values())}
    sorted(seen)
    """)
    assert seen == [("inner", 1), ("outer", 0)]
    assert prepared.value("told(job)") == [[("outer", 2, 2, True)]]  # those that are not to be left are gone


def test_a_description_and_a_postfix_arrive_although_nothing_follows(prepared: Notebook, tmp_path):
    go_on = tmp_path / "go_on"
    prepared.check(f"""
    def work():
        for outer in tqdm(range(3), desc="seldom", mininterval=60, miniters=9):  # in a terminal
            if outer < 2:
                continue
            bar = tqdm(total=10)
            bar.update(3)
            for n in range(1000):
                bar.set_description(f"\\x1b[34mstep {{n}}\\x1b[0m")  # in color
                bar.set_postfix(n=n)
            wait_for({str(go_on)!r})
    """)
    cell = prepared.begin("notebook_launcher(work, num_processes=2)")
    prepared.read_until(cell, "seldom 2/3 › step 999 3/10")
    assert "n=999" in cell.text
    go_on.touch()
    prepared.finish(cell)
    assert cell.error is None
    assert cell.stderr == ""


def test_a_bar_to_a_file_of_the_users_is_written_as_ever(prepared: Notebook):
    prepared.check(
        define("import io\nout = io.StringIO()\nfor _ in tqdm(range(5), file=out): pass\nreturn out.getvalue()")
    )
    assert "5/5" in prepared.value("run(work).result()")[0]
    assert prepared.value("told(run(work))") == [[("", 5, 5, True)]] * 2


@pytest.mark.versions
def test_text_written_beside_a_bar_appears(prepared: Notebook):
    prepared.check(define("for n in tqdm(range(2)): tqdm.write(f'said {n}')"))
    assert prepared.check("notebook_launcher(work, num_processes=1)").stdout == "said 0\nsaid 1\n"


def test_a_fork_of_a_rank_does_not_speak_for_it(prepared: Notebook):
    prepared.check(
        define(
            "import multiprocessing as m\n"
            "p = m.get_context('fork').Process(target=lambda: (list(trange(3, desc='child')), report(child=1)))\n"
            "p.start(); p.join()\nreport(parent=1)"
        )
    )
    prepared.check("job = run(work, 1)")
    assert prepared.value("told(job), job.ranks[0].metrics") == ([[]], {"parent": 1.0})


RICH = """
from rich.progress import Progress, track
for _ in track(range(4), description="[red]tracked"): pass
with Progress() as progress:
    outer, inner = progress.add_task("outer", total=2), progress.add_task("inner", total=3)
    hidden = progress.add_task("hidden", total=3, visible=False)
    for _ in range(2):
        progress.reset(inner)
        for _ in range(3): progress.advance(inner)
        progress.advance(outer)
    progress.console.print("said")
    progress.start()
with Progress(transient=True) as progress: progress.add_task("gone")
with Progress(disable=True) as progress: progress.add_task("disabled")
"""


@pytest.mark.parametrize("before", ["", "import rich.progress\n"], ids=["imported in the rank", "imported before"])
def test_bars_of_rich_are_told_and_not_drawn(prepared: Notebook, before: str):
    prepared.check(before + define(RICH))
    cell = prepared.check("job = run(work)")
    assert (
        prepared.value("told(job)")
        == [[("tracked", 4.0, 4.0, True), ("outer", 2.0, 2.0, True), ("inner", 3.0, 3.0, True)]] * 2
    )
    # Before version 14.1, Rich itself writes an empty line for a progress that is disabled.
    assert {line.partition(" ")[2] for line in cell.lines} - {""} == {"said"}
    assert cell.stderr == ""


def test_bars_of_rich_in_a_file_of_the_users_are_drawn_there_too(prepared: Notebook):
    prepared.check(
        define(
            "import io\nfrom rich.console import Console\nfrom rich.progress import track\nout = io.StringIO()\n"
            "for _ in track(range(4), description='d', console=Console(file=out)): pass\nreturn out.getvalue()"
        )
    )
    assert "100%" in prepared.value("run(work, 1).result()")[0]
    assert prepared.value("told(run(work, 1))") == [[("d", 4.0, 4.0, True)]]


def test_a_prepared_loader_shows_a_bar_unless_one_of_the_users_counts_it(prepared: Notebook):
    prepared.check(
        "def work(wrap):\n"
        "    loader = torch.utils.data.DataLoader(torch.arange(8.))\n"
        "    for _ in wrap(Accelerator(cpu=True).prepare(loader)): pass\n"
    )
    bare, wrapped, counted = (
        prepared.value(f"told(run(work, args=({wrap},)))")
        for wrap in ("iter", "lambda it: tqdm(it, desc='mine')", "lambda it: tqdm(enumerate(it), total=4, desc='mine')")
    )
    assert bare == [[("batch", 4, 4, True)]] * 2
    assert wrapped == counted == [[("mine", 4, 4, True)]] * 2


def test_metrics_are_told(prepared: Notebook):
    prepared.check(define("for step in range(5): report(loss=1 / (step + 1), step=step)"))
    prepared.check("job = run(work)")
    assert prepared.value("[state.metrics for state in job.ranks]") == [{"loss": 0.2}] * 2
    assert prepared.value("job.metrics[['rank', 'step', 'loss']].values.tolist()") == [
        [rank, step, 1 / (step + 1)] for rank in range(2) for step in range(5)
    ]


@pytest.mark.versions
def test_what_an_accelerator_logs_is_told(prepared: Notebook):
    prepared.check(define("Accelerator(cpu=True).log({'loss': 0.5}, step=3)"))
    prepared.check("job = run(work, 1)")
    assert prepared.value("job.metrics[['step', 'loss']].values.tolist()") == [[3, 0.5]]


def test_of_many_metrics_every_one_arrives(prepared: Notebook):
    prepared.check(
        define("report(once=7)\nfor step in range(30_000): report(loss=step, step=step)\nreport(val=1, step=step)")
    )
    prepared.check("job = run(work)")
    assert prepared.value("job.ranks[0].metrics") == {"once": 7.0, "loss": 29999.0, "val": 1.0}
    assert (
        prepared.value("job.metrics[['rank', 'loss']].groupby('rank')['loss'].agg(['size', 'sum']).values.tolist()")
        == [[30_002, sum(range(30_000))]] * 2
    )


def test_what_is_no_number_is_refused_alike_with_and_without_a_launch(prepared: Notebook):
    said = "report() takes numbers, and 'loss' is a list, not a number"
    assert said in prepared.run("report(loss=[1, 2])").traceback
    assert said in prepared.run("notebook_launcher(lambda: report(loss=[1, 2]), num_processes=1)").traceback


def test_a_report_outside_of_a_launch_is_remembered(prepared: Notebook):
    assert prepared.value("dict(report(torch_loss=torch.tensor(0.5), step=3))")["torch_loss"] == 0.5
    assert "torch_loss" in prepared.value("dict(report())")


@pytest.mark.versions
def test_the_output_is_html_that_text_accompanies(prepared: Notebook):
    prepared.check(define("for step in trange(5): report(loss=step)\nreport(loss=float('nan'))"))
    (bundle,) = prepared.check("notebook_launcher(work, num_processes=2)").bundles
    assert set(bundle) == {"text/html", "text/plain"}
    assert "<img" in bundle["text/html"]
    assert "5/5" in bundle["text/html"]
    assert "rank 1  done" in bundle["text/plain"]


@pytest.mark.versions
def test_a_view_can_be_chosen(prepared: Notebook):
    try:
        prepared.check("set_view('text')")
        (bundle,) = prepared.check("notebook_launcher(int, num_processes=1)").bundles
        assert set(bundle) == {"text/plain"}
    finally:
        prepared.check("set_view(None)")


def test_an_unknown_view_is_an_error_before_anything_starts(prepared: Notebook):
    assert "there is no view 'htm' (did you mean 'html'?)" in prepared.run("set_view('htm')").traceback
    try:
        prepared.check("os.environ['NOTEBOOK_ACCEL_VIEW'] = 'panel'")
        cell = prepared.run("notebook_launcher(int, num_processes=1)")
        assert cell.error == "ConfigurationError"
        assert "NOTEBOOK_ACCEL_VIEW: there is no view 'panel'; choose one of widget, html, text" in cell.traceback
        assert not cell.bundles
    finally:
        prepared.check("del os.environ['NOTEBOOK_ACCEL_VIEW']")


@pytest.mark.versions
def test_a_job_is_shown_again_while_it_runs_and_afterwards(prepared: Notebook, tmp_path):
    go_on = tmp_path / "go_on"
    prepared.check(f"""
    def work():
        for step in trange(3, mininterval=0):
            while step == 2 and not os.path.exists({str(go_on)!r}):
                time.sleep(0.01)
    """)
    first = prepared.check("job = notebook_launcher(work, num_processes=2, block=False)")
    prepared.read_until(first, "2/3")
    second = prepared.check("job.show()")
    go_on.touch()
    for cell in (first, second):
        prepared.read_until(cell, "work() on 2 ranks: done")
    assert prepared.check("job.show()").bundles == second.bundles


@pytest.mark.versions
def test_what_is_written_between_two_cells_stands_below_the_cell_that_it_comes_from(prepared: Notebook, tmp_path):
    written = tmp_path / "written"
    prepared.check(f"""
    import contextvars, threading
    from notebook_accel.launch.show import console

    def write():
        console.current.write("stdout", "between\\n")
        open({str(written)!r}, "w").close()
    """)
    first = prepared.check("threading.Timer(0.3, contextvars.copy_context().run, (write,)).start()")
    wait_until(written.exists)
    second = prepared.check("print('next')")
    prepared.read_until(first, "between")
    assert second.stdout == "next\n"


@pytest.mark.versions
def test_a_failed_rank_comes_first_with_its_error(prepared: Notebook):
    prepared.check(
        define("rank = join()\nfor _ in trange(5):\n    if rank == 1: raise ValueError('<no>')\n    dist.barrier()")
    )
    cell = prepared.run("notebook_launcher(work, num_processes=2)")
    assert cell.error == "RankError"
    (bundle,) = cell.bundles
    assert "ValueError: &lt;no&gt;" in bundle["text/html"]
    assert bundle["text/plain"].splitlines()[1].startswith("rank 1  failed    ValueError: <no>")
