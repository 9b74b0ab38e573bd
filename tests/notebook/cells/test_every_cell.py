import pytest

from notebook_accel.errors import ConfigurationError
from notebook_accel.notebook.cells import every_cell

PULL = "get_ipython().run_line_magic('accelerate', 'pull x')"


def split(source: str) -> list[tuple[bool, str]]:
    return [(part.in_kernel, part.source) for part in every_cell.split(source)]


def test_a_cell_without_lines_for_the_kernel_is_one_part() -> None:
    assert split("# comment\nx = 1\n\nx") == [(False, "# comment\nx = 1\n\nx")]
    assert split("# only a comment\n") == []


def test_the_parts_of_a_cell_keep_their_lines() -> None:
    source = f"x = 1\n@cache\ndef f():\n    return x\n{PULL}\n# comment\ny = (\n  2)\njobs = {PULL}"
    assert split(source) == [
        (False, "x = 1\n@cache\ndef f():\n    return x\n" + "\n" * 4 + "\nNone"),
        (True, "\n" * 4 + PULL + "\n" * 4 + "\nNone"),
        (False, "\n" * 6 + "y = (\n  2)\n" + "\nNone"),
        (True, "\n" * 8 + f"jobs = {PULL}"),
    ]


def test_a_line_ends_where_it_does_for_python() -> None:
    cell = f"x = 'a\fb\x1c\u2028c'\r\ny = x\n{PULL}"
    assert split(cell) == [(False, "x = 'a\fb\x1c\u2028c'\ny = x\n\nNone"), (True, f"\n\n{PULL}")]


@pytest.mark.parametrize(
    ("call", "in_kernel"),
    [
        ("get_ipython().run_line_magic('pip', 'install x')", True),
        ("get_ipython().run_line_magic('rerun', '3')", True),
        ("get_ipython().run_line_magic('time', 'x')", False),
        ("get_ipython().run_line_magic('load_ext', ' notebook_accel ')", True),
        ("get_ipython().run_line_magic('load_ext', 'autoreload')", False),
        ("get_ipython().run_cell_magic('accelerate', '-n 2', 'x')", True),
        ("get_ipython().run_cell_magic('rank', '0', 'x')", True),
        ("get_ipython().run_cell_magic('bash', '', 'ls')", False),
        ("get_ipython().system('pip install x')", False),
        ("mine().run_line_magic('accelerate', 'stop')", False),
        ("get_ipython().run_line_magic('accelerate')", False),
    ],
)
def test_some_magics_run_in_the_kernel(call: str, in_kernel: bool) -> None:
    assert split(call) == [(in_kernel, call)]
    assert split(f"x = {call}") == [(in_kernel, f"x = {call}")]


@pytest.mark.parametrize("source", ["if x:\n    {}", "f({})", "def f():\n    return {}", "x = [{}]"])
def test_a_line_for_the_kernel_inside_a_block_is_refused(source: str) -> None:
    with pytest.raises(ConfigurationError, match=r"`%accelerate pull x` in line \d runs in the kernel, but"):
        every_cell.split(source.format(PULL))
