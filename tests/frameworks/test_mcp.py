"""The tools of agents through Jupyter's MCP server, as a real MCP client finds and calls them."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from typing import Any

import nbformat
import pytest
from fastmcp import Client
from fastmcp.exceptions import ToolError

from notebook_accel.jupyter import mcp
from notebook_accel.launch.job.describe import notices
from tests.browser.kernels import NEWEST
from tests.browser.server import Server
from tests.free_ports import free_port
from tests.jupyter.conftest import RecordedJob, job, state
from tests.jupyter.test_mcp import READING, quoted_lines

__all__ = ["job", "state"]

WRITING = ("start_job", "stop_job", "checkpoint_job")
TRAINING = """
import notebook_accel
from notebook_accel import report

def train(steps):
    for step in range(steps):
        report(loss=1 / (step + 1), step=step)
    return steps
"""
FIRST_CELL = """import os
from notebook_accel import report

scale = 1.0"""
SECOND_CELL = """%%accelerate -n 2
for step in range(1, 4):
    report(loss=scale / (step + 1), step=step)
print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])"""


class Tools:
    """A Jupyter server whose MCP server a client can call."""

    def __init__(self, *options: str) -> None:
        port = free_port()
        self._url = f"http://127.0.0.1:{port}/mcp"
        self.server = Server("server", [NEWEST], options=[f"--MCPExtensionApp.mcp_port={port}", *options])

    def names(self) -> set[str]:
        async def list_tools() -> set[str]:
            async with Client(self._url) as client:
                return {tool.name for tool in await client.list_tools()}

        return asyncio.run(list_tools())

    def call(self, name: str, **arguments: Any) -> str:
        async def call_tool() -> str:
            async with Client(self._url) as client:
                return str((await client.call_tool(name, arguments)).data)

        return asyncio.run(call_tool())


@pytest.fixture(scope="module")
def tools(state: object) -> Iterator[Tools]:
    """One that may write; what it starts is recorded where the jobs of this file are."""
    found = Tools("--NotebookAccelTools.allow_writes=True")
    yield found
    found.server.close()


def test_a_client_finds_the_tools_and_reads_a_job(tools: Tools, job: RecordedJob) -> None:
    """Takes long on a busy machine: a Jupyter server with its extensions."""
    assert {*READING, *WRITING} <= tools.names()
    assert quoted_lines(tools.call("job", job_id=job.job.id))[0].startswith("train() on 2 ranks")
    began = time.monotonic()
    waited = tools.call("wait_for_job", job_id=job.job.id, seconds=0.1)
    assert quoted_lines(waited)[0].startswith("nothing has happened yet")
    assert time.monotonic() - began < mcp.MOST_SECONDS


def test_a_job_that_a_client_stops_says_who_asked(tools: Tools, job: RecordedJob) -> None:
    tools.call("stop_job", job_id=job.job.id, reason="enough")
    job.add()
    assert re.fullmatch(r"\d\d:\d\d: an agent \(.+\) asked to stop it: enough", notices(job.job)[0])


def test_a_client_starts_a_function_of_an_open_notebook(tools: Tools) -> None:
    """Takes long on a busy machine: a kernel, a fork server, and a job."""
    kernel = tools.server.open("work/digits.ipynb", NEWEST)
    try:
        kernel.execute(TRAINING, reply=True, timeout=120)
        with pytest.raises(ToolError, match=r"no open notebook is called other.ipynb: open are work/digits.ipynb"):
            tools.call("start_job", notebook="other.ipynb", function="train", reason="to try")
        with pytest.raises(ToolError, match="no function 'trian': it defines train; did you mean train"):
            tools.call("start_job", notebook="digits.ipynb", function="trian", reason="to try")
        wanted = {"notebook": "digits.ipynb", "function": "train", "arguments": [20], "num_processes": 1}
        started = tools.call("start_job", **wanted, reason="to try")
        assert quoted_lines(started)[0].startswith("train() on 1 rank")
        text = wait_for_end(tools, started)
        assert re.search(r"an agent \(.+\) started it: to try", text)
        assert "loss  0.05" in text
        kernel.execute("1 + 1", reply=True, timeout=60)
    finally:
        kernel.stop_channels()


def test_a_client_starts_a_cell_of_a_saved_notebook(tools: Tools) -> None:
    """Takes long on a busy machine: as above."""
    texts = enumerate((FIRST_CELL, SECOND_CELL), 1)
    first, second = (nbformat.v4.new_code_cell(text, execution_count=number) for number, text in texts)
    path = tools.server.root / "work/cells.ipynb"
    path.parent.mkdir(exist_ok=True)
    nbformat.write(nbformat.v4.new_notebook(cells=[first, second]), path)
    kernel = tools.server.open("work/cells.ipynb", NEWEST)
    try:
        kernel.execute(first.source, reply=True, timeout=120)
        wanted = {"notebook": "cells.ipynb", "num_processes": 2, "reason": "to try"}
        listed = rf"has no code cell In\[9\]: it has {first.id} \(In\[1\]\), {second.id} \(In\[2\]\)"
        with pytest.raises(ToolError, match=listed):
            tools.call("start_job", cell="In[9]", **wanted)
        with pytest.raises(ToolError, match="give either a function, with its arguments, or a cell"):
            tools.call("start_job", cell="In[2]", function="train", **wanted)
        for name in second.id, "In[2]":
            started = tools.call("start_job", cell=name, **wanted)
            assert quoted_lines(started)[0].startswith("In[2] on 2 ranks")
            text = wait_for_end(tools, started)
            assert "loss  0.25, last at step 3" in text
            assert re.search(r"an agent \(.+\) started it: to try", text)
            [found] = re.findall(r"^Job (\w+)\.", started)
            assert set(quoted_lines(tools.call("job_log", job_id=found))) == {"[0] rank 0 of 2", "[1] rank 1 of 2"}
    finally:
        kernel.stop_channels()


def wait_for_end(tools: Tools, started: str) -> str:
    """The answer once the job is done."""
    [found] = re.findall(r"^Job (\w+)\.", started)
    while "it has ended (done)" not in (text := tools.call("wait_for_job", job_id=found)):
        assert "nothing has happened yet" in text
    return text
