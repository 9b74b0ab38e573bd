"""Whatever a cell defines reaches the ranks; what can't is named before anything starts."""

# ruff: noqa: E501  # a case of a table is easier to read on one line

import re
from dataclasses import dataclass

import pytest

from tests.live_notebook import Notebook


@dataclass(frozen=True)
class Case:
    name: str
    cell: str
    """What the notebook defines; `f` is launched on two ranks."""
    expected: object
    """What each rank returns."""


CASES = [
    Case("a lambda", "f = lambda: 5", 5),
    Case("what IPython defines under the names of Python's", "import io\ndef f(): return open is io.open, type(exit).__name__, exit is not quit", (True, "Quitter", True)),
    Case("code that looks for IPython", "def f():\n    try: return get_ipython()\n    except NameError: return 'none'", "none"),
    Case("a name of IPython's that the notebook has bound again", "def exit(): return 6\ndef f(): return exit()", 6),
    Case(
        "the names of Accelerate",
        "import notebook_accel as accelerate\nfrom notebook_accel import utils\n"
        "def f(): return [accelerate.utils.find_batch_size([torch.ones(4)]), utils.__name__]",
        [4, "notebook_accel.utils"],
    ),
    Case("a closure", "def make(n):\n    def inner():\n        return n\n    return inner\nf = make(7)", 7),
    Case(
        "names that only the body of a class in a function reads",
        "import contextlib\nsize, n = 3, 9\n"
        "def f():\n"
        "    class Box:\n"
        "        width = size\n"
        "        n = 4\n"
        "        height = n\n"
        "        @contextlib.contextmanager\n"
        "        def open(self): yield self.height\n"
        "    with Box().open() as found: return Box.width, found",
        (3, 4),
    ),
    Case(
        "a model with trained weights",
        """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, x):
        return self.layer(x)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    (net(torch.ones(2, 4)) - 1).pow(2).mean().backward()
    optimizer.step()
trained = net(torch.ones(1, 4)).item()
def f(): return net(torch.ones(1, 4)).item() == trained and all(p.requires_grad for p in net.parameters())
""",
        True,
    ),
    Case("a recursive function", "def f(n=5): return 1 if n < 2 else n * f(n - 1)", 120),
    Case("a function that uses another", "def helper(n): return n + base\nbase = 40\ndef f(): return helper(2)", 42),
    Case("a partial", "import functools\ndef add(a, b): return a + b\nf = functools.partial(add, 1, b=2)", 3),
    Case("a bound method", "class Runner:\n    n = 9\n    def run(self): return self.n\nf = Runner().run", 9),
    Case("a callable object", "class Call:\n    def __call__(self): return 11\nf = Call()", 11),
    Case("a decorated function", "import functools\ndef twice(g):\n    @functools.wraps(g)\n    def wrapper(): return 2 * g()\n    return wrapper\n@twice\ndef f(): return 21", 42),
    Case("a generator function", "def count(n):\n    yield from range(n)\ndef f(): return list(count(3))", [0, 1, 2]),
    Case("a coroutine function", "import asyncio\nasync def later(): return 5\ndef f(): return asyncio.run(later())", 5),
    Case(
        "a torch generator",
        "g = torch.Generator().manual_seed(5)\ng2 = torch.Generator().manual_seed(5)\n"
        "expected = torch.rand(3, generator=g2).tolist()\n"
        "def f(): return torch.rand(3, generator=g).tolist() == expected",
        True,
    ),
    Case("a class with a class attribute that it changes", "class Counter:\n    count = 0\ndef f():\n    Counter.count += 1\n    return Counter.count", 1),
    Case("a global that the function changes", "total = 1\ndef bump():\n    global total\n    total += 1\ndef f():\n    bump()\n    return total", 2),
    Case("a name that shadows a builtin", "def sum(xs): return 'mine'\ndef f(): return sum([1])\n", "mine"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_ranks_can_use(notebook: Notebook, case: Case):
    notebook.check(case.cell)
    assert notebook.value("notebook_launcher(f, num_processes=2)") == [case.expected, case.expected]
    if "def sum" in case.cell:
        notebook.check("del sum")


IN_A_RANK = {
    "pickle of an object": (
        "class Item:\n    n = 3\nitem = Item()",
        "import pickle\n    again = pickle.loads(pickle.dumps(item))\n    return type(again) is Item, again.n",
        (True, 3),
    ),
    "pickle of a function": ("def g(): return 4", "import pickle\n    return pickle.loads(pickle.dumps(g))()", 4),
    "torch.save and torch.load": (
        "class Net(torch.nn.Linear): pass\nnet = Net(2, 2)",
        ("import io\n    file = io.BytesIO()\n    torch.save(net, file)\n    file.seek(0)\n"
        "    return type(torch.load(file, weights_only=False)) is Net"),
        True,
    ),
    "copy.deepcopy": ("class Item: n = 3\nitem = Item()", "import copy\n    return type(copy.deepcopy(item)) is Item", True),
    "inspect.getsource of a function": (
        "def shown():\n    return 1  # one",
        "import inspect\n    return inspect.getsource(shown)",
        "def shown():\n    return 1  # one\n",
    ),
    "inspect.getsource of a class": (
        "class Shown:\n    def method(self):\n        return 2  # two",
        "import inspect\n    return inspect.getsource(Shown.method).strip()",
        "def method(self):\n        return 2  # two",
    ),
    "torch.jit.script, which compiles the text of a cell": (
        "def doubled(x: torch.Tensor) -> torch.Tensor:\n    return 2 * x",
        "return torch.jit.script(doubled)(torch.ones(1)).item()",
        2.0,
    ),
    "the reasons that torch.compile gives, with the line of a cell": (
        "def broken(x):\n    y = x + 1\n    torch._dynamo.graph_break()\n    return y * 2",
        "reason = torch._dynamo.explain(broken)(torch.ones(1)).break_reasons[0]\n    return reason.user_stack[-1].line",
        "torch._dynamo.graph_break()",
    ),
    "typing.get_type_hints of a function": (
        "class Hint: pass\ndef hinted(a: 'Hint') -> int: ...",
        "import typing\n    return typing.get_type_hints(hinted) == {'a': Hint, 'return': int}",
        True,
    ),
    "names through the __main__ module": (
        "def g(): return 4",
        "import __main__\n    return __main__.g is g, g.__module__, g.__globals__ is vars(__main__)",
        (True, "__main__", True),
    ),
    "a fork pool": (
        "def square(n): return n * n",
        "import multiprocessing as m\n    with m.get_context('fork').Pool(2) as pool: return pool.map(square, range(4))",
        [0, 1, 4, 9],
    ),
    "a spawn pool": (
        "def square(n): return n * n",
        ("from concurrent.futures import ProcessPoolExecutor\n    import multiprocessing as m\n"
        "    with ProcessPoolExecutor(1, m.get_context('spawn')) as pool: return list(pool.map(square, range(4)))"),
        [0, 1, 4, 9],
    ),
    "a spawn pool, and a module beside the notebook": (
        "with open('beside.py', 'w') as file: file.write('def half(n): return n / 2')",
        ("from concurrent.futures import ProcessPoolExecutor\n    import beside, multiprocessing as m\n"
        "    with ProcessPoolExecutor(1, m.get_context('spawn')) as pool: return list(pool.map(beside.half, range(2)))"),
        [0.0, 0.5],
    ),
    "threads": (
        "def square(n): return n * n",
        "from concurrent.futures import ThreadPoolExecutor\n    with ThreadPoolExecutor() as pool: return list(pool.map(square, range(4)))",
        [0, 1, 4, 9],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_A_RANK)
def test_in_a_rank_the_notebooks_own_works_with(notebook: Notebook, name: str):
    setup, body, expected = IN_A_RANK[name]
    notebook.check(setup)
    uses = re.findall(r"^(?:class|def) (\w+)|^(\w+) =", setup, re.MULTILINE)
    names = ", ".join(first or second for first, second in uses)
    notebook.check(f"def f():\n    {names}\n    {body}")
    assert notebook.value("notebook_launcher(f, num_processes=2)") == [expected, expected]


LOADER = """
class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return transform(index)

def transform(index):
    return torch.tensor(float(index)) ** 2

def collate(items):
    return torch.stack(items)

def seed(worker):
    assert torch.utils.data.get_worker_info().id == worker

def f():
    loader = torch.utils.data.DataLoader(
        Squares(),
        batch_size=4,
        num_workers=2,
        multiprocessing_context="fork",
        collate_fn=collate,
        worker_init_fn=seed,
    )
    return [batch.tolist() for batch in loader]
"""


def test_in_a_rank_a_dataset_of_a_cell_is_loaded_by_workers(notebook: Notebook):
    notebook.check(LOADER)
    expected = [[0.0, 1.0, 4.0, 9.0], [16.0, 25.0, 36.0, 49.0]]
    assert notebook.value("notebook_launcher(f, num_processes=1)") == [expected]


def test_large_captured_arrays_are_shared_by_the_ranks(notebook: Notebook):
    notebook.check("""
    array = np.ones(25_000_000)  # 200 MB
    tensor = torch.ones(50_000_000)  # 200 MB
    part = tensor[10:20]

    def private():
        with open("/proc/self/smaps_rollup") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith("Private_")) / 1024

    def use():
        join()
        before = private()
        total = array.sum() + tensor.sum().item() + part.sum().item()
        dist.barrier()
        growth = private() - before
        dist.barrier()  # as long as one rank measures, no other may go
        return float(total), round(growth)

    def change():
        rank = join()
        array[0] = rank
        tensor[10] = rank
        dist.barrier()
        return array[0].item(), part[0].item()
    """)
    cell = notebook.check("used = notebook_launcher(use, num_processes=2)")
    assert cell.seconds < 20
    for total, growth in notebook.value("used"):
        assert total == 75_000_010
        assert growth < 60, "MB for each rank, of 400"
    assert notebook.value("notebook_launcher(change, num_processes=2)") == [(0.0, 0.0), (1.0, 1.0)]
    assert notebook.value("array[0].item(), part[0].item()") == (1.0, 1.0)
    notebook.check("del array, tensor, part, used")


def test_an_array_is_captured_as_it_is_when_the_launch_begins(notebook: Notebook):
    notebook.check("data = np.zeros(100_000)\ndef f(): return data.sum().item()")
    for value in (1, 2):
        notebook.check(f"data[:] = {value}")
        assert notebook.value("notebook_launcher(f, num_processes=2)") == [value * 100_000.0] * 2


def test_a_redefined_function_and_class_are_used_by_the_next_launch(notebook: Notebook):
    for number in (1, 2):
        notebook.check(
            f"class Version:\n    number = {number}\ndef helper(): return {number}\ndef f(): return Version.number, helper()"
        )
        assert notebook.value("notebook_launcher(f, num_processes=2)") == [(number, number)] * 2


# What comes back


def test_results_are_instances_of_the_notebooks_own_class_which_is_not_altered(notebook: Notebook):
    notebook.check("""
    import enum
    from dataclasses import dataclass

    class Mood(enum.Enum):
        GOOD = 1

    @dataclass
    class Result:
        rank: int
        mood: Mood
        def doubled(self):
            return 2 * self.rank

    class Outer:
        class Inner:
            pass

    def local():
        class Local:
            n = 1
            def method(self):
                return 5
        return Local

    Local = local()
    kept = {cls: dict(vars(cls)) for cls in (Result, Mood, Outer, Outer.Inner, Local)}

    def f():
        return Result(int(os.environ["RANK"]), Mood.GOOD), Outer.Inner(), Local(), Result, local

    results = notebook_launcher(f, num_processes=2)
    first = results[0]
    """)
    assert notebook.value("[type(r[0]) is Result for r in results], [r[0].doubled() for r in results]") == (
        [True, True],
        [0, 2],
    )
    assert notebook.value("first[0].mood is Mood.GOOD, results[0][0] == Result(0, Mood.GOOD)") == (True, True)
    assert notebook.value("type(first[1]) is Outer.Inner, first[3] is Result, first[4] is local") == (True,) * 3
    assert notebook.value("type(first[2]) is Local, first[2].method()") == (True, 5)
    assert (
        notebook.value("""
    [(cls.__name__, name) for cls, before in kept.items()
     for name, value in vars(cls).items() if name != "__slotnames__" and before.get(name) is not value]
    """)
        == []
    )


def test_results_that_only_refer_to_what_a_rank_defined_come_back(notebook: Notebook):
    notebook.check("""
    def f():
        class Made:
            n = 3
        return Made(), lambda: 4
    made, function = notebook_launcher(f, num_processes=1)[0]
    """)
    assert notebook.value("made.n, function()") == (3, 4)


# What cannot be sent


@dataclass(frozen=True)
class Refusal:
    name: str
    cell: str
    """What the notebook defines; `f` is refused."""
    names: str
    """The variable as it is named."""
    line: str | None
    """The line of the cell that uses it."""
    kind: str
    launch: str = "notebook_launcher(f, num_processes=2)"


REFUSALS = [
    Refusal("a lock deep in data", "table = {'a': [1, {'b': threading.Lock()}]}\ndef f():\n    return table", "`table['a'][1]['b']`", "return table", "lock"),
    Refusal("a lock as an argument", "def f(x): pass", "`args[0]`", None, "lock", "notebook_launcher(f, (threading.Lock(),), num_processes=2)"),
]  # fmt: skip


WATCH = """
if "watch" not in globals():
    def watch(event, arguments):
        if event in ("socket.bind", "subprocess.Popen", "os.fork", "os.posix_spawn"):
            done.append(event)

    sys.addaudithook(watch)
done = []
"""


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.name)
def test_what_cannot_be_pickled_is_named_before_anything_starts(notebook: Notebook, refusal: Refusal):
    notebook.check(WATCH)
    notebook.check("notebook_launcher(int, num_processes=1)")
    assert notebook.value("done") == ["socket.bind"], "what a launch does that goes on to start ranks"
    notebook.check(refusal.cell)
    notebook.check("done.clear()")
    cell = notebook.run(refusal.launch)
    assert cell.error == "PayloadError", cell
    assert notebook.value("done") == []
    assert refusal.names in cell.error_text
    assert refusal.kind in cell.error_text
    if refusal.line is not None:
        assert re.search(rf"In\[\d+\] line \d+: `{re.escape(refusal.line)}`", cell.error_text), cell.error_text
    assert "notebook_accel/" not in cell.traceback
    assert len(cell.traceback.splitlines()) < 6
