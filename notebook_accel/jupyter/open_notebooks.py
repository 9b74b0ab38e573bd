"""Open notebooks: the text of a cell, and an expression that the kernel evaluates beside the cells that run."""

from __future__ import annotations

import ast
import queue
import re
import time
from collections.abc import Sequence
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from jupyter_server.serverapp import ServerApp
from jupyter_server.utils import ensure_async

_NAME = "found"
_NUMBER = re.compile(r"(?:In ?)?\[?(\d+)\]?")
_MOST_LISTED = 40
_LOOK = 0.5
"""Seconds between two looks at whether the kernel lives."""
_DEATHS = ("restart", "dead")
"""What Jupyter calls it when a kernel has died: whether it starts it again, or has tried too often."""


async def evaluate(server: ServerApp, notebook: str, expression: str, seconds: float) -> str:
    """The value of an expression, which must be a text.

    Args:
        server: The Jupyter server that the notebook is open in.
        notebook: The path of the notebook, or its name if no other open notebook has it.
        expression: In Python.
        seconds: How long the kernel may take; it also answers late, once it no longer runs a cell.

    Raises:
        ValueError: No such notebook is open, the kernel dies or runs a cell, or the expression raises an exception.
    """
    kernels = await _kernels(server)
    kernel = server.kernel_manager.get_kernel(kernels[_path(notebook, kernels)])
    deaths: list[None] = []
    is_told = partial(deaths.append, None)
    for event in _DEATHS:
        kernel.add_restart_callback(is_told, event)
    client = kernel.client()
    client.start_channels(iopub=False, stdin=False, hb=False, control=False)
    try:
        sent = client.execute("", silent=True, user_expressions={_NAME: expression}, allow_stdin=False)
        content = await _reply(client, sent, time.monotonic() + seconds, deaths)
    except queue.Empty:
        raise ValueError(
            f"the kernel of {notebook} has died: once it runs again, run its cells, and try again"
            if deaths
            else f"the kernel of {notebook} is busy: wait until its cell has ended, and try again"
        ) from None
    finally:
        client.stop_channels()
        for event in _DEATHS:
            kernel.remove_restart_callback(is_told, event)
    found = content.get("user_expressions", {}).get(_NAME, content)
    if found["status"] != "ok":
        raise ValueError(f"the kernel of {notebook} can't do that: {found.get('ename')}: {found.get('evalue')}")
    text: str = ast.literal_eval(found["data"]["text/plain"])
    return text


async def cell_text(server: ServerApp, notebook: str, cell: str) -> tuple[str, str]:
    """What a code cell of the saved notebook is called, and its text.

    Args:
        server: The Jupyter server that the notebook is open in.
        notebook: As in `evaluate`.
        cell: The cell's ID, or its number as in `In[3]`.

    Raises:
        ValueError: No such notebook is open, or it has no such cell.
    """
    path = _path(notebook, await _kernels(server))
    contents: Any = server.contents_manager
    model = await ensure_async(contents.get(path, content=True, type="notebook"))
    cells = [each for each in model["content"]["cells"] if each["cell_type"] == "code"]
    number = _NUMBER.fullmatch(cell.strip())
    for each in cells:
        if each.get("id") == cell or (number and each.get("execution_count") == int(number[1])):
            count = each.get("execution_count")
            return (f"In[{count}]" if count else f"cell {each.get('id')}"), str(each["source"])
    listed = ", ".join(_listed(each) for each in cells[:_MOST_LISTED]) + (", …" if len(cells) > _MOST_LISTED else "")
    raise ValueError(
        f"{path}, as it is saved, has no code cell {cell:.60}: {f'it has {listed}' if cells else 'it has none'}"
    )


def _listed(cell: dict[str, Any]) -> str:
    count = cell.get("execution_count")
    return f"{cell.get('id', '')}{f' (In[{count}])' if count else ''}"


async def _kernels(server: ServerApp) -> dict[str, str]:
    """The ID of the kernel of each open notebook, by path."""
    sessions = await ensure_async(server.session_manager.list_sessions())
    return {
        each["path"]: str(each["kernel"]["id"]) for each in sessions if each["type"] == "notebook" and each["kernel"]
    }


def _path(notebook: str, kernels: dict[str, str]) -> str:
    """The path of an open notebook."""
    found = [path for path in kernels if notebook in (path, PurePosixPath(path).name)]
    if notebook in kernels or len(found) == 1:
        return notebook if notebook in kernels else found[0]
    named = ", ".join(found or kernels)
    if found:
        raise ValueError(f"several open notebooks are called {notebook}: give the path of one: {named}")
    raise ValueError(f"no open notebook is called {notebook}: {f'open are {named}' if named else 'none is open'}")


async def _reply(client: Any, sent: str, deadline: float, deaths: Sequence[None]) -> dict[str, Any]:
    """The content of the reply to a message.

    Raises:
        queue.Empty: There is none in time, or the kernel dies, as `deaths` tells.
    """
    while True:
        left = max(0.0, deadline - time.monotonic())
        try:
            message = await ensure_async(client.get_shell_msg(timeout=min(left, _LOOK)))
        except queue.Empty:
            if left <= _LOOK or deaths:
                raise
            continue
        if message["parent_header"].get("msg_id") == sent:
            content: dict[str, Any] = message["content"]
            return content
