"""Has the kernel of an open notebook evaluate an expression, beside the cells that the user runs."""

from __future__ import annotations

import ast
import queue
import time
from pathlib import PurePosixPath
from typing import Any

from jupyter_server.serverapp import ServerApp
from jupyter_server.utils import ensure_async

_NAME = "found"


async def evaluate(server: ServerApp, notebook: str, expression: str, seconds: float) -> str:
    """The value of an expression, which must be a text.

    Args:
        server: The Jupyter server that the notebook is open in.
        notebook: The path of the notebook, or its name if no other open notebook has it.
        expression: In Python.
        seconds: How long the kernel may take; it also answers late, once it no longer runs a cell.

    Raises:
        ValueError: No such notebook is open, the kernel runs a cell, or the expression raises an exception.
    """
    kernel = server.kernel_manager.get_kernel(await _kernel_id(server, notebook))
    client = kernel.client()
    client.start_channels(iopub=False, stdin=False, hb=False, control=False)
    try:
        sent = client.execute("", silent=True, user_expressions={_NAME: expression}, allow_stdin=False)
        content = await _reply(client, sent, time.monotonic() + seconds)
    except queue.Empty:
        raise ValueError(f"the kernel of {notebook} is busy: wait until its cell has ended, and try again") from None
    finally:
        client.stop_channels()
    found = content.get("user_expressions", {}).get(_NAME, content)
    if found["status"] != "ok":
        raise ValueError(f"the kernel of {notebook} can't do that: {found.get('ename')}: {found.get('evalue')}")
    text: str = ast.literal_eval(found["data"]["text/plain"])
    return text


async def _kernel_id(server: ServerApp, notebook: str) -> str:
    sessions = await ensure_async(server.session_manager.list_sessions())
    kernels = {each["path"]: each["kernel"]["id"] for each in sessions if each["type"] == "notebook" and each["kernel"]}
    found = [path for path in kernels if notebook in (path, PurePosixPath(path).name)]
    if notebook in kernels or len(found) == 1:
        return str(kernels[notebook if notebook in kernels else found[0]])
    named = ", ".join(found or kernels)
    if found:
        raise ValueError(f"several open notebooks are called {notebook}: give the path of one: {named}")
    raise ValueError(f"no open notebook is called {notebook}: {f'open are {named}' if named else 'none is open'}")


async def _reply(client: Any, sent: str, deadline: float) -> dict[str, Any]:
    """The content of the reply to a message.

    Raises:
        queue.Empty: There is none in time.
    """
    while True:
        message = await ensure_async(client.get_shell_msg(timeout=max(0.0, deadline - time.monotonic())))
        if message["parent_header"].get("msg_id") == sent:
            content: dict[str, Any] = message["content"]
            return content
