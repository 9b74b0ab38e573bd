"""What a kernel evaluates for the Jupyter server, beside the cells of its user."""

from __future__ import annotations

import asyncio
import json
import signal
import tempfile
import time
from collections.abc import Coroutine, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.ioloop.manager import AsyncIOLoopKernelManager
from jupyter_client.manager import AsyncKernelManager, KernelManager

from notebook_accel.jupyter.open_notebooks import cell_text, evaluate

LONG = 60.0


def server_with(kernel: Any, *paths: str) -> Any:
    """As much of a Jupyter server as is asked, in which these notebooks are open."""

    async def list_sessions() -> list[dict[str, Any]]:
        return [{"path": path, "type": "notebook", "kernel": {"id": path}} for path in paths]

    return SimpleNamespace(
        session_manager=SimpleNamespace(list_sessions=list_sessions),
        kernel_manager=SimpleNamespace(get_kernel=lambda path: kernel),
    )


def result(call: Coroutine[Any, Any, str]) -> str:
    return asyncio.run(call)


def own_sockets(folder: str) -> dict[str, Any]:
    """Options of a kernel manager: sockets in a folder, since a free port may be taken before the kernel binds it."""
    return {"transport": "ipc", "connection_file": f"{folder}/kernel.json"}


@pytest.fixture(scope="module")
def manager() -> Iterator[KernelManager]:
    with tempfile.TemporaryDirectory() as folder:
        found = KernelManager(**own_sockets(folder))
        found.start_kernel()
        yield found
        found.shutdown_kernel(now=True)


@pytest.fixture
def user(manager: KernelManager) -> Iterator[BlockingKernelClient]:
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=LONG)
    yield client
    client.stop_channels()


@pytest.fixture
def kernel(manager: KernelManager) -> AsyncKernelManager:
    """As the server has it."""
    found = AsyncKernelManager(connection_file=manager.connection_file)
    found.load_connection_file()
    return found


def test_an_expression_is_evaluated_in_the_kernel(user: BlockingKernelClient, kernel: AsyncKernelManager) -> None:
    user.execute("name = 'it\\'s\\nthere'", reply=True, timeout=LONG)
    server = server_with(kernel, "a/one.ipynb", "a/two.ipynb")
    assert result(evaluate(server, "one.ipynb", "name", LONG)) == "it's\nthere"
    assert result(evaluate(server, "a/two.ipynb", "name * 2", LONG)) == "it's\nthere" * 2


def test_an_exception_is_an_error_in_a_line(user: BlockingKernelClient, kernel: AsyncKernelManager) -> None:
    with pytest.raises(ValueError, match=r"the kernel of one.ipynb can't do that: ZeroDivisionError: division by zero"):
        result(evaluate(server_with(kernel, "one.ipynb"), "one.ipynb", "str(1 / 0)", LONG))


def test_a_kernel_that_runs_a_cell_is_said_to_be_busy(user: BlockingKernelClient, kernel: AsyncKernelManager) -> None:
    busy = user.execute("input()", allow_stdin=True)
    user.get_stdin_msg(timeout=LONG)  # the cell waits
    with pytest.raises(ValueError, match=r"the kernel of one.ipynb is busy: wait until its cell has ended"):
        result(evaluate(server_with(kernel, "one.ipynb"), "one.ipynb", "'late'", 0.1))
    user.input("")
    while user.get_shell_msg(timeout=LONG)["parent_header"].get("msg_id") != busy:
        pass


def test_a_kernel_that_dies_is_said_to_have_died() -> None:
    """Takes as long as Jupyter takes to notice."""

    async def start_and_kill(folder: str) -> str:
        kernel = AsyncIOLoopKernelManager(autorestart=True, **own_sockets(folder))
        await kernel.start_kernel()
        try:
            client = kernel.client()
            client.start_channels()
            await client.wait_for_ready(timeout=LONG)
            client.execute("input()", allow_stdin=True)
            await client.get_stdin_msg(timeout=LONG)
            asked = asyncio.create_task(evaluate(server_with(kernel, "one.ipynb"), "one.ipynb", "'late'", LONG))
            await kernel.signal_kernel(signal.SIGKILL)
            client.stop_channels()
            return await asked
        finally:
            await kernel.shutdown_kernel(now=True)

    died = r"the kernel of one.ipynb has died: once it runs again, run its cells"
    with tempfile.TemporaryDirectory() as folder, pytest.raises(ValueError, match=died):
        asyncio.run(start_and_kill(folder))


@pytest.mark.parametrize(
    ("open_ones", "name", "message"),
    [
        ((), "one.ipynb", "no open notebook is called one.ipynb: none is open"),
        (("a.ipynb",), "one.ipynb", "no open notebook is called one.ipynb: open are a.ipynb"),
        (("a/x.ipynb", "b/x.ipynb"), "x.ipynb", "several open notebooks are called x.ipynb: give the path of one: a/x"),
    ],
)
def test_a_notebook_that_is_not_the_only_one_is_an_error(open_ones: tuple[str, ...], name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        result(evaluate(server_with(None, *open_ones), name, "''", LONG))


def test_the_path_of_one_is_enough_where_another_has_its_name(
    user: BlockingKernelClient, kernel: AsyncKernelManager
) -> None:
    assert result(evaluate(server_with(kernel, "x.ipynb", "b/x.ipynb"), "x.ipynb", "'here'", LONG)) == "here"


def server_with_cells(*cells: dict[str, Any]) -> Any:
    """A server in which `a/x.ipynb` is open, and saved with these cells."""

    async def get(path: str, content: bool, type: str) -> dict[str, Any]:
        assert (path, content, type) == ("a/x.ipynb", True, "notebook")
        return {"content": {"cells": cells}}

    server = server_with(None, "a/x.ipynb")
    server.contents_manager = SimpleNamespace(get=get)
    return server


CELLS = (
    {"cell_type": "markdown", "id": "head", "source": "# Training"},
    {"cell_type": "code", "id": "one", "execution_count": 3, "source": "x = 1"},
    {"cell_type": "code", "id": "two", "execution_count": None, "source": "train()"},
)


@pytest.mark.parametrize(
    ("cell", "found"),
    [("one", ("In[3]", "x = 1")), ("In[3]", ("In[3]", "x = 1")), ("3", ("In[3]", "x = 1")),
     ("two", ("cell two", "train()"))],
)  # fmt: skip
def test_a_cell_is_found_by_its_id_or_its_number(cell: str, found: tuple[str, str]) -> None:
    assert asyncio.run(cell_text(server_with_cells(*CELLS), "x.ipynb", cell)) == found


@pytest.mark.parametrize("cell", ["head", "In[4]", "three"])
def test_a_cell_that_is_not_there_is_an_error_that_names_the_others(cell: str) -> None:
    with pytest.raises(
        ValueError, match=r"a/x.ipynb, as it is saved, has no code cell .+: it has one \(In\[3\]\), two"
    ):
        asyncio.run(cell_text(server_with_cells(*CELLS), "x.ipynb", cell))
    with pytest.raises(ValueError, match="it has none"):
        asyncio.run(cell_text(server_with_cells(), "x.ipynb", cell))


LAUNCHED_HERE = """
from types import SimpleNamespace
from notebook_accel.notebook import agent_launch

def launched(function, arguments, *, detach, name):
    function(*arguments)
    return SimpleNamespace(id=f"{name}: {function.__globals__['found']}")

agent_launch.notebook_launcher = launched
rate = 2
"""


def test_a_cell_is_launched_with_what_the_notebook_has_defined(
    user: BlockingKernelClient, kernel: AsyncKernelManager
) -> None:
    def start(cell: str) -> Any:
        options = {"arguments": [], "options": {"name": "In[3]"}, "before": time.time() + LONG}
        expression = f"agent_launch.start({json.dumps({'cell': cell, **options})!r})"
        return json.loads(result(evaluate(server_with(kernel, "one.ipynb"), "one.ipynb", expression, LONG)))

    user.execute(LAUNCHED_HERE, reply=True, timeout=LONG)
    assert start("%%accelerate -n 2\nfound = 21 * rate") == {"id": "In[3]: 42"}
    assert start("found = 1\nnotebook_launcher(train)") == {
        "error": "line 2 of the cell launches ranks itself: start the function that it launches instead"
    }
