"""What ranks return comes back as it was."""

# a case of a table is easier to read on one line

from pathlib import Path

import pytest

from tests.live_notebook import Notebook

VALUES = {
    "the rank itself": ("int(os.environ['RANK'])", "results == [0, 1]"),
    "nothing": ("None", "results is None"),
    "nothing on one rank": ("1 if os.environ['RANK'] == '1' else None", "results == [None, 1]"),
    "a tensor": ("torch.arange(5.0)", "torch.equal(results[1], torch.arange(5.0)) and results[0].device.type == 'cpu'"),
    "a large tensor": ("torch.full((100_000,), 2.0)", "results[0].sum().item() == 200_000"),
    "a model": ("torch.nn.Linear(2, 2)", "results[0](torch.ones(1, 2)).shape == (1, 2)"),
    "an array": ("np.arange(100_000)", "(results[1] == np.arange(100_000)).all() and results[0].flags.writeable"),
    "nested containers": (
        "[{'a': (torch.ones(2), np.ones(2), {1, 2})}, [None, 'text', b'bytes', 1j]]",
        "results[0][0]['a'][0].sum().item() == 2 and results[1][1] == [None, 'text', b'bytes', 1j]",
    ),
    "the same object twice": ("(lambda x: [x, x])([1])", "results[0][0] is results[0][1]"),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_ranks_can_return(notebook: Notebook, name: str):
    value, holds = VALUES[name]
    notebook.check(f"results = notebook_launcher(lambda: {value}, num_processes=2)")
    assert notebook.value(f"bool({holds})"), notebook.check("results").value


def test_a_hundred_megabytes_come_back(notebook: Notebook):
    notebook.check("def big(): return torch.ones(25_000_000), np.full(3, 7)")
    cell = notebook.check("results = notebook_launcher(big, num_processes=2)")
    assert notebook.value("[r[0].sum().item() for r in results], results[1][1].tolist()") == ([25e6, 25e6], [7, 7, 7])
    assert cell.seconds < 20
    notebook.check("del results")


UNRETURNABLE = {
    "a lock": ("threading.Lock()", "`result` is a "),
    "a generator": ("(n for n in range(3))", "`result` is a generator"),
}


@pytest.mark.parametrize("name", UNRETURNABLE)
def test_a_value_that_cannot_come_back_names_the_rank_and_the_part(notebook: Notebook, name: str):
    value, named = UNRETURNABLE[name]
    cell = notebook.run(f"notebook_launcher(lambda: {value} if os.environ['RANK'] == '1' else 1, num_processes=3)")
    assert cell.error == "RankError"
    assert cell.traceback.startswith("RankError: rank 1 of 3 returned a value that can't be sent back"), cell.traceback
    assert named in cell.traceback
    assert "notebook_accel/" not in cell.traceback


@pytest.mark.smoke
def test_results_are_in_the_order_of_the_ranks_whoever_ends_first(notebook: Notebook, tmp_path: Path):
    notebook.check(f"""
    def f():
        rank = int(os.environ["RANK"])
        while rank < 3 and not os.path.exists(f"{tmp_path}/{{rank + 1}}"):
            time.sleep(0.002)
        open(f"{tmp_path}/{{rank}}", "w").close()
        return rank
    """)
    assert notebook.value("notebook_launcher(f, num_processes=4)") == [0, 1, 2, 3]


def test_a_result_that_is_not_kept_is_freed(notebook: Notebook):
    notebook.check("""
    import gc, psutil
    def big(): return np.ones(4_000_000)  # 32 MB

    def resident():
        gc.collect()
        return psutil.Process().memory_info().rss / 2**20

    notebook_launcher(big, num_processes=2)
    before = resident()
    for _ in range(4):
        notebook_launcher(big, num_processes=2);
    """)
    assert notebook.value("resident() - before < 80")


SETTER = """
def settle():
    global settled
    settled = 5
    return settled

settled = 1
"""


def test_globals_that_ranks_assign_are_named_and_stay_the_notebooks(notebook: Notebook) -> None:
    notebook.check(SETTER)
    for ranks, whose in ((1, "the rank's"), (2, "each rank's")):
        cell = notebook.check(f"notebook_launcher(settle, num_processes={ranks}, device='cpu')")
        assert f"settle assigns the global name settled in {whose} own process" in cell.text
    assert notebook.value("settled") == 1
    quiet = notebook.check("notebook_launcher(int, num_processes=1, device='cpu')")
    assert "global name" not in quiet.text


def test_a_function_in_this_process_assigns_the_notebooks_globals(notebook: Notebook) -> None:
    notebook.check(SETTER)
    cell = notebook.check("notebook_launcher(settle, num_processes=1, device='cpu', in_process=True)")
    assert "global name" not in cell.text
    assert notebook.value("settled") == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("num_processes=2, device='cpu', in_process=True", "the inprocess engine runs at most 1 rank, not 2"),
        ("in_process=True, detach=True, num_processes=1, device='cpu'", "does not work with the inprocess engine"),
        ("in_process=True, cluster='auto'", "in_process=True runs the only rank in this process, but cluster='auto'"),
        ("in_process=1", "in_process must be True or False, not 1"),
    ],
)
def test_what_cannot_run_in_this_process_is_refused(notebook: Notebook, arguments: str, message: str) -> None:
    cell = notebook.run(f"notebook_launcher(int, {arguments})")
    assert cell.error == "ConfigurationError"
    assert message in cell.error_text


def test_a_function_that_a_rank_defined_and_returns_fails_at_a_line_of_the_launched_cell(notebook: Notebook) -> None:
    notebook.check("""
    def make():
        def fail(number):
            return number / 0
        return fail
    """)
    number = notebook.value("len(In) - 2")
    notebook.check("[returned, _] = notebook_launcher(make, num_processes=2)")
    failed = notebook.run("returned(1)")
    assert failed.error == "ZeroDivisionError"
    assert f"In[{number}]" in failed.traceback, failed.traceback
    assert "return number / 0" in failed.traceback
    assert notebook.value("__import__('inspect').getsource(returned)").strip().startswith("def fail(number):")
