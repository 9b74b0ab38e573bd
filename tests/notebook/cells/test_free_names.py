"""Which names a cell reads from outside."""

import ast

import pytest

from notebook_accel.notebook.cells.free_names import read_names

READS = {
    "x": {"x"},
    "x = 1\nx": set(),
    "x += 1": {"x"},
    "x.y = z[0]": {"x", "z"},
    "for i in xs:\n    i, j": {"xs", "j"},
    "if a:\n    x = 1\nelse:\n    x = 2\nx": {"a"},
    "if a:\n    x = 1\nx": {"a", "x"},
    "try:\n    import m\nexcept ImportError:\n    m = None\nm": {"ImportError"},
    "with open(p) as f:\n    f": {"open", "p"},
    "[y + z for y in ys if y]": {"ys", "z"},
    "{k: v for k, v in d.items()}": {"d"},
    "(n := m) + n": {"m"},
    "def f(a, b=c):\n    d = a\n    return d + e": {"c", "e"},
    "def f():\n    return g()\ndef g():\n    return f()": set(),
    "lambda a: a + b": {"b"},
    "def f():\n    def g():\n        return outer, inner\n    inner = 1\n    return g": {"outer"},
    "@deco\nclass A(B):\n    x = 1\n    y = x\n    def m(self):\n        return A, z": {"deco", "B", "z"},
    "async def f():\n    await g()": {"g"},
    "await task": {"task"},
    "del x": {"x"},
    "x = [x, y]": {"x", "y"},
    "x: y = x": {"x", "y"},
    "match v:\n    case {'a': a, **rest}:\n        a, rest, b": {"v", "b"},
    "import a.b as c, d.e\nc, d": set(),
    "get_ipython().run_line_magic('time', 'y = work(x)')\ny": {"get_ipython", "work", "x"},
    "get_ipython().system('echo $name {a + b} \"plain\"')": {"get_ipython", "name", "a", "b"},
}


@pytest.mark.parametrize("source", READS)
def test_names_that_are_read_from_outside(source: str):
    assert read_names(ast.parse(source)).keys() == READS[source]


def test_the_line_is_that_of_the_first_use():
    assert read_names(ast.parse("x = 1\n\nprint(x, y)\ny")) == {"print": 3, "y": 3}
    assert read_names(ast.parse("def f():\n    z = 1\n    return lock, z")) == {"lock": 3}
