import contextlib
import linecache
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import pytest

from notebook_accel import PayloadError
from notebook_accel.launch.wire import payload, unpicklable

IN_THE_FUNCTION = "Create it inside the function, or pass what it is made from."
LOCK = "Locks and threads belong to one process: create it inside the function."
FILE = "An open file belongs to one process: pass its path, and open it inside the function."
ITERATOR = "An iterator can't be copied: pass a list, or create it inside the function."


def run_cell(source: str) -> dict[str, Any]:
    """What a cell leaves in `__main__`, but for `__main__` itself."""
    text = "import functools, io, math, os, socket, threading\n" + textwrap.dedent(source).lstrip("\n")
    linecache.cache["<cell>"] = (len(text), None, text.splitlines(keepends=True), "<cell>")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, "<cell>", "exec"), namespace)
    return namespace


def explain(source: str) -> str:
    """Why the `train` of a cell can't be sent."""
    return explain_cell(run_cell(source))


def explain_cell(cell: dict[str, Any]) -> str:
    with pytest.raises(PayloadError) as refused:
        payload.pack(cell["train"], cell.get("args", ()), cell.get("kwargs", {}))
    return str(refused.value)


CULPRITS = {
    "a global": (
        """
        lock = threading.Lock()
        def train():
            with lock:
                pass
        """,
        "train() can't be sent to the ranks: it uses `lock`, a _thread.lock (in train(), <cell> line 4: `with lock:`).",
    ),
    "a closure cell": (
        """
        def make():
            lock = threading.Lock()
            def train():
                return lock.locked()
            return train
        train = make()
        """,
        "it uses `lock`, a _thread.lock (in make.<locals>.train(), <cell> line 5: `return lock.locked()`).",
    ),
    "a nested attribute": (
        """
        class Box: pass
        box = Box()
        box.inner = Box()
        box.inner.lock = threading.Lock()
        def train():
            return box
        """,
        "it uses `box.inner.lock`, a _thread.lock (in train(), <cell> line 7: `return box`).",
    ),
    "an object whose class can't be sent either": (
        """
        Layer = type("Layer", (), {"lock": threading.Lock(), "__module__": "math"})
        layers = [Layer()]
        def train():
            return layers
        """,
        "it uses `layers[0]`, a math.Layer (in train(), <cell> line 5: `return layers`).",
    ),
    "a class that can't be sent": (
        """
        Layer = type("Layer", (), {"lock": threading.Lock(), "__module__": "math"})
        def train():
            return Layer()
        """,
        "it uses `Layer`, a class (in train(), <cell> line 4: `return Layer()`).",
    ),
    "an entry of a dict": (
        """
        settings = {"lr": 0.1, "locks": [1, threading.Lock()]}
        def train():
            return settings["lr"]
        """,
        "it uses `settings['locks'][1]`, a _thread.lock (in train(), <cell> line 4: `return settings[\"lr\"]`).",
    ),
    "an element of a set": (
        """
        locks = {threading.Lock()}
        def train():
            return locks
        """,
        "it uses `locks (an element)`, a _thread.lock (in train(), <cell> line 4: `return locks`).",
    ),
    "a partial's argument": (
        """
        train = functools.partial(print, "a", threading.Lock())
        """,
        "args[1]` is a _thread.lock.",
    ),
    "a partial's keyword": (
        """
        train = functools.partial(print, end=threading.Lock())
        """,
        "keywords['end']` is a _thread.lock.",
    ),
    "a partial's function": (
        """
        lock = threading.Lock()
        def work():
            return lock
        train = functools.partial(work)
        """,
        "it uses `lock`, a _thread.lock (in work(), <cell> line 4: `return lock`).",
    ),
    "a bound method's object": (
        """
        class Trainer:
            def __init__(self):
                self.lock = threading.Lock()
            def train(self):
                pass
        train = Trainer().train
        """,
        "__self__.lock` is a _thread.lock.",
    ),
    "a method's global": (
        """
        lock = threading.Lock()
        class Trainer:
            def train(self):
                return lock
        train = Trainer().train
        """,
        "it uses `lock`, a _thread.lock (in Trainer.train(), <cell> line 5: `return lock`).",
    ),
    "a default value": (
        """
        def train(rank=0, *, lock=threading.Lock()):
            pass
        """,
        "train() can't be sent to the ranks: `a default of train()` is a _thread.lock.",
    ),
    "a helper's global": (
        """
        lock = threading.Lock()
        def helper():
            return lock
        def train():
            return helper()
        """,
        "it uses `lock`, a _thread.lock (in helper(), <cell> line 4: `return lock`).",
    ),
    "a helper's helper's global": (
        """
        lock = threading.Lock()
        def third():
            return lock
        def second():
            return third()
        def train():
            return second()
        """,
        "it uses `lock`, a _thread.lock (in third(), <cell> line 4: `return lock`).",
    ),
    "a lambda's global": (
        """
        lock = threading.Lock()
        train = lambda: lock
        """,
        "it uses `lock`, a _thread.lock (in <lambda>(), <cell> line 3: `train = lambda: lock`).",
    ),
    "a global of a function within": (
        """
        lock = threading.Lock()
        def train():
            def within():
                return lock
            return within()
        """,
        "it uses `lock`, a _thread.lock (in train(), <cell> line 5: `return lock`).",
    ),
    "a class attribute": (
        """
        class Config:
            rate = 0.1
            lock = threading.Lock()
        def train():
            return Config.rate
        """,
        "it uses `Config.lock`, a _thread.lock (in train(), <cell> line 6: `return Config.rate`).",
    ),
    "a class attribute that came later": (
        """
        class Config:
            rate = 0.1
        Config.lock = threading.Lock()
        def train():
            return Config.rate
        """,
        "it uses `Config.lock`, a _thread.lock",
    ),
    "an attribute of a base class": (
        """
        class Base:
            lock = threading.Lock()
        class Config(Base):
            pass
        def train():
            return Config()
        """,
        "lock`, a _thread.lock",
    ),
    "a global of a class's static method": (
        """
        lock = threading.Lock()
        class Tools:
            @staticmethod
            def helper():
                return lock
        def train():
            return Tools.helper()
        """,
        "it uses `lock`, a _thread.lock (in Tools.helper(), <cell> line 6: `return lock`).",
    ),
    "the class of an object": (
        """
        class Config:
            lock = threading.Lock()
        config = Config()
        def train():
            return config
        """,
        "it uses `config.lock`, a _thread.lock (in train(), <cell> line 6: `return config`).",
    ),
    "an object with slots": (
        """
        class Slim:
            __slots__ = ("lock",)
        slim = Slim()
        slim.lock = threading.Lock()
        def train():
            return slim
        """,
        "it uses `slim.lock`, a _thread.lock",
    ),
    "an argument": (
        """
        def train(first, second):
            pass
        args = (1, {"locks": [threading.Lock()]})
        """,
        "train() can't be sent to the ranks: `args[1]['locks'][0]` is a _thread.lock.",
    ),
    "a keyword argument": (
        """
        def train(**options):
            pass
        kwargs = {"rate": 1, "lock": threading.Lock()}
        """,
        "train() can't be sent to the ranks: `kwargs['lock']` is a _thread.lock.",
    ),
    "a function that is an argument": (
        """
        lock = threading.Lock()
        def loss():
            return lock
        def train(function):
            pass
        args = (loss,)
        """,
        "it uses `lock`, a _thread.lock (in loss(), <cell> line 4: `return lock`).",
    ),
    "the function itself": (
        """
        class Train:
            __name__ = "train"
            def __call__(self): pass
            def __reduce__(self): raise TypeError("not this one")
        train = Train()
        """,
        "Train() can't be sent to the ranks: it is a Train.",
    ),
    "a part that comes after a cycle": (
        """
        class Node: pass
        trainer = Node()
        trainer.model = Node()
        trainer.model.trainer = trainer
        trainer.lock = threading.Lock()
        def train():
            return trainer
        """,
        "it uses `trainer.lock`, a _thread.lock",
    ),
    "a global of functions that call each other": (
        """
        lock = threading.Lock()
        def helper():
            train()
        def train():
            helper()
            return lock
        """,
        "it uses `lock`, a _thread.lock (in train(), <cell> line 7: `return lock`).",
    ),
    "not a global with the name of an attribute": (
        """
        log = threading.RLock()
        zlock = threading.Lock()
        def train():
            math.log(2)
            return zlock
        """,
        "it uses `zlock`, a _thread.lock (in train(), <cell> line 6: `return zlock`).",
    ),
}


@pytest.mark.parametrize(("source", "blame"), CULPRITS.values(), ids=CULPRITS)
def test_the_culprit_is_named(source: str, blame: str) -> None:
    assert blame in explain(source)


ADVICE = {
    "threading.Lock()": LOCK,
    "threading.RLock()": LOCK,
    "threading.Thread()": LOCK,
    "threading.Event()": LOCK,
    "(number for number in [1])": ITERATOR,
    "open(os.devnull, 'w')": FILE,
    "open(os.devnull, 'rb')": FILE,
    "socket.socket()": IN_THE_FUNCTION,
}


@pytest.mark.python
@pytest.mark.parametrize(("culprit", "advice"), ADVICE.items(), ids=ADVICE)
def test_the_advice_fits_the_type(culprit: str, advice: str) -> None:
    cell = run_cell(f"culprit = {culprit}\ndef train(): return culprit")
    with contextlib.ExitStack() as stack:
        stack.callback(getattr(cell["culprit"], "close", int))
        assert advice in explain_cell(cell)


def test_the_original_error_is_kept() -> None:
    cell = run_cell("lock = threading.Lock()\ndef train(): return lock")
    with pytest.raises(PayloadError, match=r"\(TypeError: cannot pickle '_thread.lock' object\)$") as refused:
        payload.pack(cell["train"], (), {})
    assert isinstance(refused.value.__cause__, TypeError)


ENDLESS = {
    "a list in itself": "x = []\nx += [x, threading.Lock()]",
    "a dict in itself": "x = {}\nx['x'] = x\nx['lock'] = threading.Lock()",
    "an object in itself": "class X: pass\nx = X()\nx.x = x\nx.lock = threading.Lock()",
    "a function in itself": "lock = threading.Lock()\ndef x(): return x, lock",
    "a class in itself": "class X: lock = threading.Lock()\nX.x = X\nx = X",
    "a very deep list": "x = [threading.Lock()]\nfor _ in range(5000): x = [x]",
    "a very wide list": "x = [[number] for number in range(5000)] + [threading.Lock()]",
    "an object that makes itself up": """class X:
    def __getattr__(self, name): return X()
    def __reduce__(self): raise TypeError("no")
x = X()""",
    "a proxy for nothing": """class X:
    @property
    def __dict__(self): raise RuntimeError("no")
    def __reduce__(self): raise TypeError("no")
x = X()""",
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("source", ENDLESS.values(), ids=ENDLESS)
def test_looking_for_the_culprit_ends(source: str) -> None:
    assert "train() can't be sent to the ranks: it uses `" in explain(f"{source}\ndef train(): return x")


def test_a_large_capture_is_no_burden() -> None:
    source = "x = [list(range(1000)) for _ in range(300)]\nlock = threading.Lock()\ndef train(): return x, lock"
    assert "it uses `lock`" in explain(source)


@pytest.mark.parametrize(
    ("source", "name", "line"),
    [
        ("def f():\n    a = 1\n    return x + a\n", "x", 3),
        ("def f():\n    def g():\n        return x\n    return g\n", "x", 3),
        ("def f():\n    return [x for _ in range(3)]\n", "x", 2),
        ("def f():\n    return (1 +\n            x)\n", "x", 3),
        ("def f():\n    import math\n    math.x\n    return x\n", "x", 4),
        ("def f():\n    global x\n    x = 1\n    return x\n", "x", 4),
    ],
)
def test_the_line_that_uses_it_is_found(source: str, name: str, line: int) -> None:
    text = source.splitlines()[line - 1].strip()
    # A cell's first line is our imports.
    assert unpicklable.where_used(run_cell(source)["f"], name) == f"<cell> line {line + 1}: `{text}`"


def test_a_line_without_source_is_still_numbered() -> None:
    function = run_cell("def f():\n    return x\n")["f"]
    del linecache.cache["<cell>"]
    assert unpicklable.where_used(function, "x") == "<cell> line 3"
    assert unpicklable.where_used(function, "y") == ""


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (threading.Lock(), "`result` is a _thread.lock"),
        ([0, (threading.Lock(),)], "`result[1][0]` is a _thread.lock"),
        ({"a": {"b": threading.Lock()}}, "`result['a']['b']` is a _thread.lock"),
    ],
)
def test_a_value_that_cannot_come_back_is_named(value: object, named: str) -> None:
    message = unpicklable.explain_unreturnable(value, TypeError("cannot pickle"))
    assert named in message
    assert "Return plain data instead" in message
    assert message.endswith("(TypeError: cannot pickle)")


class OnDevice:
    """Stands for a tensor on a GPU, as far as the message is concerned."""

    device = type("device", (), {"type": "cuda"})()
    nbytes = 3_500_000


def test_tensors_of_a_device_are_named_with_their_size() -> None:
    weights, model = OnDevice(), {"layer": OnDevice()}

    def train() -> Callable[[], object]:
        return lambda: (weights, model)

    message = unpicklable.describe_device_tensors(train, (OnDevice(),), {}, 10_500_000)
    for named in ("`weights` (3.5 MB)", "`model['layer']` (3.5 MB)", "`args[0]` (3.5 MB)", "10.5 MB were copied"):
        assert named in message
