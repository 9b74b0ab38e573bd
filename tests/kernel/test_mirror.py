"""Ranks take on the notebook's state, import the user's modules anew, and find installed packages imported."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.live_notebook import UNTRAINED, Notebook, wait_until

STATES = {
    "a variable of the environment": (
        "os.environ['OWN'] = '5'",
        "os.environ['OWN']",
        "'5'",
        "del os.environ['OWN']",
    ),
    "a variable that libraries read as they load": (
        "os.environ['TORCH_OWN_SETTING'] = '5'",
        "os.environ['TORCH_OWN_SETTING']",
        "'5'",
        "del os.environ['TORCH_OWN_SETTING']",
    ),
    "the working directory": ("here = os.getcwd()\nos.chdir('/usr')", "os.getcwd()", "'/usr'", "os.chdir(here)"),
    "sys.path": ("sys.path.append('/own/place')", "sys.path", "sys.path", "sys.path.remove('/own/place')"),
    "sys.argv": ("argv = sys.argv[:]\nsys.argv[1:] = ['--own']", "sys.argv[1:]", "['--own']", "sys.argv[:] = argv"),
    "torch's default dtype": (
        "torch.set_default_dtype(torch.float64)",
        "str(torch.ones(1).dtype)",
        "'torch.float64'",
        "torch.set_default_dtype(torch.float32)",
    ),
    "torch's precision of products": (
        "torch.set_float32_matmul_precision('high')",
        "torch.get_float32_matmul_precision()",
        "'high'",
        "torch.set_float32_matmul_precision('highest')",
    ),
    "torch's deterministic mode": (
        "torch.use_deterministic_algorithms(True, warn_only=True)",
        "(torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled())",
        "(True, True)",
        "torch.use_deterministic_algorithms(False)",
    ),
    "torch's print options": (
        "torch.set_printoptions(precision=2, sci_mode=False)",
        "str(torch.tensor(1 / 3))",
        "'tensor(0.33)'",
        "torch.set_printoptions(profile='default')",
    ),
    "flags of torch.backends": (
        "torch.backends.cudnn.benchmark = True\ntorch.backends.cudnn.allow_tf32 = False",
        "(torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32)",
        "(True, False)",
        "torch.backends.cudnn.benchmark = False\ntorch.backends.cudnn.allow_tf32 = True",
    ),
    "torch's anomaly detection": (
        "torch.autograd.set_detect_anomaly(True)",
        "torch.is_anomaly_enabled()",
        "True",
        "torch.autograd.set_detect_anomaly(False)",
    ),
    "NumPy's print options": (
        "np.set_printoptions(precision=2)",
        "str(np.array([1 / 3]))",
        "'[0.33]'",
        "np.set_printoptions(precision=8)",
    ),
    "NumPy's handling of errors": (
        "errors = np.seterr(divide='ignore')",
        "np.geterr()['divide']",
        "'ignore'",
        "np.seterr(**errors)",
    ),
    "options of pandas": (
        "import pandas\npandas.set_option('display.max_rows', 7)",
        "pandas.get_option('display.max_rows')",
        "7",
        "pandas.reset_option('display.max_rows')",
    ),
    "Matplotlib's parameters": (
        "import matplotlib\nmatplotlib.rcParams['lines.linewidth'] = 4.0",
        "matplotlib.rcParams['lines.linewidth']",
        "4.0",
        "matplotlib.rcdefaults()",
    ),
    "filters of warnings": (
        "import warnings\nfilters = warnings.filters[:]\nwarnings.filterwarnings('error', 'own .* warning')",
        "warnings.filters[0][0] + warnings.filters[0][1].pattern",
        "'errorown .* warning'",
        "warnings.filters[:] = filters\nwarnings._filters_mutated()",
    ),
    "levels of loggers": (
        "import logging\nlogging.getLogger('own.logger').setLevel(logging.ERROR)\nlogging.root.setLevel(15)",
        "(logging.getLogger('own.logger').level, logging.root.level)",
        "(40, 15)",
        "logging.root.setLevel(logging.WARNING)\nlogging.getLogger('own.logger').setLevel(0)",
    ),
    "the decimal context": (
        "import decimal\ndecimal.getcontext().prec = 5",
        "str(decimal.Decimal(1) / 3)",
        "'0.33333'",
        "decimal.getcontext().prec = 28",
    ),
}


def test_ranks_take_on_the_state_of_the_notebook(notebook: Notebook):
    observed = ", ".join(f"({observe})" for _, observe, _, _ in STATES.values())
    expected = ", ".join(f"({expected})" for _, _, expected, _ in STATES.values())
    for change, *_ in STATES.values():
        notebook.check(change)
    try:
        # Compared in the notebook, where the expectation may be computed.
        found = notebook.value(
            f"[[own == expected for own, expected in zip(rank, [{expected}])] "
            f"for rank in notebook_launcher(lambda: [{observed}], num_processes=2)]"
        )
    finally:
        for *_, undo in STATES.values():
            notebook.check(undo)
    for rank in found:
        assert dict(zip(STATES, rank, strict=True)) == dict.fromkeys(STATES, True)


def test_a_variable_that_the_notebook_has_removed_is_gone_from_ranks(notebook: Notebook):
    notebook.check("os.environ['OWN'] = '5'\nnotebook_launcher(int, num_processes=1)\ndel os.environ['OWN']")
    assert notebook.value("notebook_launcher(lambda: 'OWN' in os.environ, num_processes=2)") == [False, False]


def test_ranks_no_longer_have_what_has_been_undone(notebook: Notebook):
    values = notebook.value("""
    def f():
        return torch.get_default_dtype() is torch.float32, "/own/place" in sys.path, "OWN" in os.environ
    notebook_launcher(f, num_processes=2)
    """)
    assert values == [(True, False, False)] * 2


def test_ranks_draw_the_numbers_that_the_notebook_would_draw_next(notebook: Notebook):
    assert notebook.value("""
    def draw():
        return random.random(), float(np.random.rand()), torch.rand(2).tolist()

    random.seed(1), np.random.seed(2), torch.manual_seed(3)
    draw()
    drawn = notebook_launcher(draw, num_processes=2)
    mine = draw()
    drawn == [mine, mine], draw() == mine
    """) == (True, False)


def test_numbers_differ_between_launches_that_nobody_seeded(notebook: Notebook):
    assert (
        notebook.value("""
    draws = []
    for _ in range(2):
        random.random(), torch.rand(1), np.random.rand()  # the notebook goes on
        draws.append(notebook_launcher(draw, num_processes=1)[0])
    [first != second for first, second in zip(*draws)]
    """)
        == [True] * 3
    )


def test_ranks_log_as_basic_config_says(notebook: Notebook, tmp_path: Path):
    file = tmp_path / "own.log"
    notebook.check(f"""
        import logging
        handlers = [logging.StreamHandler(), logging.FileHandler({str(file)!r})]
        logging.basicConfig(level=logging.INFO, format="{{levelname}} says {{message}}", style="{{", handlers=handlers)
    """)
    cell = notebook.check("notebook_launcher(lambda: logging.info('hello'), num_processes=2, device='cpu')")
    notebook.check("logging.root.handlers.clear()\nlogging.root.setLevel(logging.WARNING)")
    assert "INFO says hello" in cell.text
    assert file.read_text() == "INFO says hello\n" * 2


# The user's own modules

HELPER = "def value():\n    return {}\n"


@pytest.fixture
def beside(notebook: Notebook, tmp_path: Path):
    """A folder that is on the notebook's path."""
    notebook.check(f"sys.path.insert(0, {str(tmp_path)!r})")
    yield tmp_path
    notebook.check(f"sys.path.remove({str(tmp_path)!r})")


def test_an_edited_module_is_imported_anew(notebook: Notebook, beside: Path):
    notebook.check("def f():\n    import helper_edited\n    return helper_edited.value()")
    for number in (1, 20, 300):
        (beside / "helper_edited.py").write_text(HELPER.format(number))
        assert notebook.value("notebook_launcher(f, num_processes=2)") == [number, number]


@pytest.mark.parametrize("imported", [False, True], ids=["alone", "although the notebook has imported it too"])
def test_an_edit_counts_within_the_same_second_and_of_the_same_length(notebook: Notebook, beside: Path, imported: bool):
    name = f"helper_quick_{imported}"
    path = beside / f"{name}.py"
    path.write_text(HELPER.format(1))
    when = path.stat().st_mtime
    if imported:
        notebook.check(f"import {name}")
    notebook.check(f"def f():\n    import {name}\n    return {name}.value()")
    assert notebook.value("notebook_launcher(f, num_processes=2)") == [1, 1]
    for number in (2, 3):
        path.write_text(HELPER.format(number))
        os.utime(path, (when, when))
        assert notebook.value("notebook_launcher(f, num_processes=2)") == [number, number]


def test_a_changed_attribute_of_an_own_module_is_named_once(notebook: Notebook, beside: Path):
    (beside / "helper_settings.py").write_text("BATCH = 32\nRATE: float = 0.5\n\ndef load():\n    return BATCH\n")
    (beside / "helper_uses.py").write_text("import helper_settings\n\ndef run():\n    return helper_settings.BATCH\n")
    notebook.check("import helper_settings, helper_uses\ndef f(): return helper_uses.run()")
    assert "has set" not in notebook.check("notebook_launcher(f, num_processes=2, device='cpu')").text
    notebook.check("helper_settings.BATCH = 64\nhelper_settings.NEW = [1]\nhelper_settings.load = lambda: 5")
    cell = notebook.check("notebook_launcher(f, num_processes=2, device='cpu')")
    text = (
        "the notebook has set helper_settings.BATCH = 64, helper_settings.load = <lambda>, helper_settings.NEW = [1], "
        "but ranks import modules themselves, and don't see that: set them in f as well"
    )
    assert text in " ".join(cell.text.split())
    assert "has set" not in notebook.check("notebook_launcher(f, num_processes=2, device='cpu')").text


def test_a_module_whose_file_has_been_edited_is_not_taken_for_changed(notebook: Notebook, beside: Path):
    path = beside / "helper_edit.py"
    path.write_text("SIZE = 1\n")
    notebook.check("import helper_edit\ndef f(): return helper_edit.SIZE")
    path.write_text("SIZE = 222\n")
    os.utime(path, (path.stat().st_mtime + 100,) * 2)
    cell = notebook.check("print(notebook_launcher(f, num_processes=2, device='cpu'))")
    assert "[222, 222]" in cell.text
    assert "has set" not in cell.text


def test_a_patched_function_of_a_package_is_named(notebook: Notebook):
    notebook.check("""
    import torch.nn.functional as F
    Layer = torch.nn.Linear
    kept, kept_forward = F.gelu, Layer.forward
    F.gelu = lambda x: x + 1
    def forward(self, x): return x
    Layer.forward = forward
    def f(): return F.gelu(torch.zeros(1)).item(), Layer
    """)
    cell = notebook.check("results = notebook_launcher(f, num_processes=2, device='cpu')")
    notebook.check("F.gelu, Layer.forward = kept, kept_forward")
    assert "torch.nn.functional.gelu = <lambda>" in cell.text
    assert "torch.nn.modules.linear.Linear.forward = forward" in cell.text


def test_an_edited_module_is_used_although_the_notebook_has_an_older_one(notebook: Notebook, beside: Path):
    (beside / "helper_older.py").write_text(HELPER.format(1))
    notebook.check("import helper_older\ndef f(): return helper_older.value()")
    (beside / "helper_older.py").write_text(HELPER.format(2000))
    assert notebook.value("notebook_launcher(f, num_processes=2), helper_older.value()") == ([2000, 2000], 1)


def test_a_function_of_a_module_can_be_launched_itself(notebook: Notebook, beside: Path):
    (beside / "helper_launched.py").write_text(HELPER.format(5))
    assert notebook.value("import helper_launched\nnotebook_launcher(helper_launched.value, num_processes=2)") == [5, 5]


def test_a_module_that_is_added_later_is_found(notebook: Notebook, beside: Path):
    notebook.check("def f():\n    import helper_late\n    return helper_late.value()")
    assert notebook.run("notebook_launcher(f, num_processes=2)").error == "RankError"
    (beside / "helper_late.py").write_text(HELPER.format(7))
    assert notebook.value("notebook_launcher(f, num_processes=2)") == [7, 7]


def test_a_module_beside_the_notebook_cannot_break_the_server(open_notebook: Callable[..., Notebook], tmp_path: Path):
    """Modules of these names are imported by torch, or by the servers themselves."""
    for name in ("random", "json", "socket", "tqdm", "cloudpickle", "selectors"):
        (tmp_path / f"{name}_.py").write_text("raise RuntimeError('the wrong one')\n")
    notebook = open_notebook(cwd=tmp_path)
    notebook.check(UNTRAINED + "from notebook_accel import notebook_launcher")
    for name in ("random", "json", "socket", "selectors"):
        (tmp_path / f"{name}_.py").rename(tmp_path / f"{name}.py")
    assert notebook.value("notebook_launcher(int, num_processes=2)") == [0, 0]


# Preloading. The packages are pytest's, which nothing else imports in a kernel.


def preloaded(notebook: Notebook, module: str) -> bool:
    return notebook.value(f"notebook_launcher(lambda: {module!r} in sys.modules, num_processes=2)")[0]


def test_the_first_accelerator_of_a_rank_imports_nothing(notebook: Notebook):
    notebook.check("""
    def imported():
        before = set(sys.modules)
        from notebook_accel import Accelerator

        Accelerator(cpu=True)
        return sorted(set(sys.modules) - before)
    """)
    assert notebook.value("notebook_launcher(imported, num_processes=2)") == [[], []]


def test_an_installed_package_that_the_notebook_has_imported_is_preloaded(notebook: Notebook, beside: Path):
    (beside / "helper_own.py").write_text(HELPER.format(1))
    assert not preloaded(notebook, "iniconfig")
    notebook.check("import iniconfig, helper_own")
    wait_until(lambda: preloaded(notebook, "iniconfig"), what="iniconfig is not there")
    assert not preloaded(notebook, "helper_own")
    assert notebook.value("notebook_launcher(lambda: helper_own.value(), num_processes=2)") == [1, 1]


def test_launches_while_a_package_is_being_imported_neither_wait_for_it_nor_prevent_it(
    open_notebook: Callable[..., Notebook], tmp_path: Path
):
    """The import takes, but for the notebook's own, until the test lets it go on."""
    begun, go_on, installed = tmp_path / "begun", tmp_path / "go_on", tmp_path / "site-packages"
    installed.mkdir()
    (installed / "helper_slow.py").write_text(f"""
import os, time
if os.environ["PARENT"] != str(os.getppid()):
    open({str(begun)!r}, "w").close()
    while not os.path.exists({str(go_on)!r}):
        time.sleep(0.01)
""")
    path = os.pathsep.join([str(installed), *filter(None, [os.environ.get("PYTHONPATH")])])
    notebook = open_notebook(env={"PYTHONPATH": path, "PARENT": str(os.getpid())})
    notebook.check(UNTRAINED + "import sys\nfrom notebook_accel import notebook_launcher")
    assert not preloaded(notebook, "helper_slow")
    notebook.check("import helper_slow")
    wait_until(lambda: notebook.check("pass") and begun.exists(), what="nobody imports it")
    for _ in range(5):
        assert not preloaded(notebook, "helper_slow")
    go_on.touch()
    wait_until(lambda: preloaded(notebook, "helper_slow"))


def test_a_job_outlives_the_change_of_servers(notebook: Notebook, tmp_path: Path):
    """A job of the server before does not end one of the server after, nor the other way round."""
    notebook.check(f"""
    def wait(name):
        join()
        wait_for(f"{tmp_path}/{{name}}")
        return name

    before = notebook_launcher(wait, ("before",), num_processes=2, block=False)
    """)
    assert not preloaded(notebook, "pluggy")
    notebook.check("import pluggy")
    wait_until(lambda: preloaded(notebook, "pluggy"))
    notebook.check('after = notebook_launcher(wait, ("after",), num_processes=2, block=False)')
    (tmp_path / "before").touch()
    assert notebook.value("before.result(60)") == ["before", "before"]
    assert notebook.value("notebook_launcher(join, num_processes=2), after.wait(0.3)") == ([0, 1], False)
    (tmp_path / "after").touch()
    assert notebook.value("after.result(60)") == ["after", "after"]


def test_what_ranks_leave_behind_is_ended_after_a_change_of_servers_too(notebook: Notebook):
    notebook.check("""
    def leave():
        import subprocess
        subprocess.Popen(["sleep", "600"], start_new_session=True)

    notebook_launcher(leave, num_processes=2)
    """)
    wait_until(lambda: not notebook.launched())
    assert not preloaded(notebook, "pytest_timeout")
    notebook.check("import pytest_timeout")
    wait_until(lambda: preloaded(notebook, "pytest_timeout"))
    notebook.check("notebook_launcher(leave, num_processes=2)")
    wait_until(lambda: not notebook.launched(), what="orphans are left")


def test_changes_of_servers_leave_no_processes(notebook: Notebook):
    """Servers that have retired are gone, and their children with them."""

    def generations() -> list[int]:
        parents = {}
        for process in notebook.servers():
            with contextlib.suppress(psutil.NoSuchProcess):
                parents[process.pid] = process.ppid()
        counts, generation = [], {pid for pid, parent in parents.items() if parent not in parents}
        while generation:
            counts.append(len(generation))
            generation = {pid for pid, parent in parents.items() if parent in generation}
        return counts

    def are_those_of_one_server() -> bool:
        keepers, servers, children, guards, *more = [*generations(), 0, 0, 0, 0]
        return (keepers, servers, guards) == (1, 1, 1) and children <= 3 and not any(more)  # a store, two spare ranks

    notebook.check("notebook_launcher(join, num_processes=2)")
    wait_until(are_those_of_one_server, what=lambda: f"keepers, servers, their children, …: {generations()}")
