"""The tools of agents through Jupyter's MCP server, as a real MCP client finds and calls them."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from typing import Any

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
        [found] = re.findall(r"^Job (\w+)\.", started)
        while "it has ended (done)" not in (text := tools.call("wait_for_job", job_id=found)):
            assert "nothing has happened yet" in text
        assert re.search(r"an agent \(.+\) started it: to try", text)
        assert "loss  0.05" in text
        kernel.execute("1 + 1", reply=True, timeout=60)
    finally:
        kernel.stop_channels()
