"""Several machines: two kernels that meet on the loopback interface."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import psutil
import pytest

from notebook_accel.config.kinds import JOIN_TIMEOUT
from tests.free_ports import free_port
from tests.kernel.conftest import end, nothing_is_left
from tests.live_notebook import UNTRAINED, Cell, Notebook, wait_until

pytestmark = pytest.mark.early

# Without torch in the kernels, which start sooner.
PRELUDE = f"""{UNTRAINED}
from notebook_accel import notebook_launcher
import os
"""
PRELUDE += """

def add():
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    total = torch.tensor(float(dist.get_rank()))
    dist.all_reduce(total)
    dist.barrier()
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK")
    return total.item(), [int(os.environ[name]) for name in names]
"""


class Pair:
    """Two kernels, each of which stands for a machine; replaced when a test has broken one."""

    def __init__(self, wrappers: Sequence[Sequence[str]] = ((), ())) -> None:
        self._wrappers = wrappers
        self._notebooks: list[Notebook] = []

    def get(self) -> list[Notebook]:
        if not all(notebook.is_usable() for notebook in self._notebooks):
            self.close()
        if not self._notebooks:
            for wrapper in self._wrappers:
                self._notebooks.append(Notebook(wrapper=wrapper))
            for notebook in self._notebooks:
                notebook.begin(PRELUDE)
            for notebook in self._notebooks:
                notebook.check("notebook_launcher(int, num_processes=1)")
        return self._notebooks

    def close(self) -> None:
        with contextlib.ExitStack() as stack:
            for notebook in self._notebooks:
                stack.callback(end, notebook)
            self._notebooks = []


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    both = Pair()
    yield both
    both.close()


@pytest.fixture
def nodes(pair: Pair) -> Iterator[list[Notebook]]:
    notebooks = pair.get()
    yield notebooks
    try:
        for notebook in notebooks:
            nothing_is_left(notebook)
    except AssertionError:
        pair.close()
        raise


def launch(notebook: Notebook, node_rank: int, port: int, *, address: str = "127.0.0.1", **others: object) -> Cell:
    """Begins a launch on one of two machines."""
    arguments = {"num_processes": 2, "num_nodes": 2, "rdzv_conf": {"timeout": 20}, **others}
    text = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    return notebook.begin(
        f"notebook_launcher(add, node_rank={node_rank}, master_addr={address!r}, use_port={port}, {text})"
    )


def expected(node: int, size: int = 2) -> str:
    return str([(6.0, [node * size + local, local, 4, size, node]) for local in range(size)])


@pytest.mark.parametrize("first", [0, 1])
def test_ranks_of_two_machines_form_one_group(nodes: list[Notebook], first: int):
    port = free_port()
    cells = {node: launch(nodes[node], node, port) for node in (first, 1 - first)}
    for node, cell in cells.items():
        nodes[node].finish(cell, timeout=30)
        assert cell.error is None, cell.traceback
        assert cell.value == expected(node)


def test_the_same_two_machines_meet_again_at_once(nodes: list[Notebook]):
    port = free_port()
    for _ in range(3):
        cells = [launch(notebook, node, port) for node, notebook in enumerate(nodes)]
        for node, cell in enumerate(cells):
            assert nodes[node].finish(cell, timeout=30).value == expected(node), cell.traceback


def test_a_machine_that_does_not_come_is_named(nodes: list[Notebook]):
    cell = launch(nodes[0], 0, free_port(), rdzv_conf={"timeout": 2})
    nodes[0].finish(cell)
    assert cell.error == "LaunchError", cell
    assert "node_rank 1" in cell.error_text
    assert "have not joined within 2 s" in cell.error_text or "has not joined within 2 s" in cell.error_text
    assert 2 <= cell.seconds < JOIN_TIMEOUT / 10


def test_a_first_machine_that_is_not_there_is_told(nodes: list[Notebook]):
    port = free_port()
    cell = launch(nodes[1], 1, port, rdzv_conf={"timeout": 2})
    nodes[1].finish(cell)
    assert cell.error == "LaunchError", cell
    assert f"127.0.0.1:{port}" in cell.error_text
    assert cell.seconds < JOIN_TIMEOUT / 10
    assert len(cell.error_text.splitlines()) < 8, "brief"


def test_waiting_for_another_machine_can_be_interrupted(nodes: list[Notebook]):
    port = free_port()
    cell = launch(nodes[0], 0, port, rdzv_conf={"timeout": 600})
    wait_until(lambda: _is_listening(port))
    nodes[0].interrupt()
    assert nodes[0].finish(cell).error == "KeyboardInterrupt"
    wait_until(lambda: not _is_listening(port))


def test_a_launch_that_was_interrupted_does_not_stand_in_the_way_of_the_next(nodes: list[Notebook]):
    port = free_port()
    cell = launch(nodes[1], 1, port)
    nodes[1].read_while(lambda: "starting" not in cell.text)
    nodes[1].interrupt()
    assert nodes[1].finish(cell).error == "KeyboardInterrupt"
    cells = [launch(notebook, node, port) for node, notebook in enumerate(nodes)]
    for node, cell in enumerate(cells):
        assert nodes[node].finish(cell, timeout=30).value == expected(node), cell.traceback


def test_machines_that_form_no_group_begin_and_end_at_different_times(nodes: list[Notebook]):
    """Each may be in the next launch while the other is in the last."""
    port = free_port()
    calls = "[notebook_launcher(int, num_processes=1, num_nodes=2, node_rank={}, use_port={}) for _ in range(3)]"
    cells = [notebook.begin(calls.format(node, port)) for node, notebook in enumerate(nodes)]
    for node, cell in enumerate(cells):
        assert nodes[node].finish(cell, timeout=60).value == "[[0], [0], [0]]", cell.traceback


def test_two_machines_with_the_first_rank_are_told_apart(nodes: list[Notebook]):
    """Here both are one machine, so the second finds its port taken."""
    port = free_port()
    first = launch(nodes[0], 0, port, rdzv_conf={"timeout": 3})
    wait_until(lambda: _is_listening(port))
    second = nodes[1].finish(launch(nodes[1], 0, port))
    assert second.error == "LaunchError"
    assert str(port) in second.error_text
    assert nodes[0].finish(first).error == "LaunchError"


def _is_listening(port: int) -> bool:
    return any(
        connection.laddr.port == port and connection.status == psutil.CONN_LISTEN
        for connection in psutil.net_connections("tcp")
    )


def test_a_rank_of_a_machine_that_is_taken_is_refused(nodes: list[Notebook]):
    port = free_port()
    nodes[0].check(f"""
    common = dict(num_processes=1, num_nodes=3, use_port={port}, rdzv_conf={{"timeout": 4}}, block=False)
    jobs = [notebook_launcher(add, node_rank=node, **common) for node in (0, 1)]

    def error(job):
        try:
            return job.result(60)
        except Exception as error:
            return str(error)
    """)
    cell = launch(nodes[1], 1, port, num_nodes=3, num_processes=1, rdzv_conf={"timeout": 4})
    nodes[1].finish(cell)
    errors = [cell.error_text, *nodes[0].value("[error(job) for job in jobs]")]
    assert cell.error == "LaunchError"
    assert any("another machine has already joined with node_rank=1" in error for error in errors), errors


def test_different_numbers_of_processes_are_refused_on_both(nodes: list[Notebook]):
    port = free_port()
    cells = [launch(nodes[node], node, port, num_processes=node + 1) for node in (0, 1)]
    for node, cell in enumerate(cells):
        nodes[node].finish(cell, timeout=30)
        assert cell.error == "LaunchError", cell
        assert "[1, 2]" in cell.error_text
        assert "num_processes" in cell.error_text


def test_different_names_of_the_run_do_not_meet(nodes: list[Notebook]):
    port = free_port()
    cells = [launch(nodes[node], node, port, rdzv_id=f"run {node}", rdzv_conf={"timeout": 2}) for node in (0, 1)]
    for node, cell in enumerate(cells):
        nodes[node].finish(cell)
        assert cell.error == "LaunchError", cell


def test_a_failure_on_one_machine_ends_both(nodes: list[Notebook]):
    for notebook in nodes:
        notebook.check("""
        def fail():
            import torch.distributed as dist

            dist.init_process_group("gloo")
            dist.barrier()
            if dist.get_rank() == 3:
                raise ValueError("only here")
            dist.barrier()
        """)
    port = free_port()
    cells = [
        notebook.begin(
            f"notebook_launcher(fail, num_processes=2, num_nodes=2, node_rank={node}, use_port={port}, timeout=20)"
        )
        for node, notebook in enumerate(nodes)
    ]
    for node, cell in enumerate(cells):
        nodes[node].finish(cell)
        assert cell.error == "RankError", cell
    assert "rank 3 of 4 raised ValueError: only here" in cells[1].traceback or (
        "rank 3 of 2" not in cells[1].traceback and "rank 3" in cells[1].traceback
    )
