"""Jobs as tools of Jupyter's MCP server: what an agent needs to follow a training run that its cell can't wait for.

jupyter-server-mcp, which the extra `mcp` installs, speaks the protocol, listens, and calls the functions of this file
in the Jupyter server. It finds them by the entry point that names `tools`. The reader's process makes the answers.

The tools only read, unless the configuration of the Jupyter server says `c.NotebookAccelTools.allow_writes = True`: an
MCP server may have no token, so anything that runs on the machine could use them.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from jupyter_server.serverapp import ServerApp
from traitlets import Bool
from traitlets.config import Configurable

from notebook_accel.jupyter import open_notebooks
from notebook_accel.jupyter.reader_process import reader
from notebook_accel.launch.job.text import shortened
from notebook_accel.launch.wire.plain_text import visible

MOST_SECONDS = 50.0
"""How long a call may wait: clients give up after a minute."""
_START_SECONDS, _LAUNCH_SECONDS = 40.0, 10.0
"""How long a kernel may take to start a job, which also waits for a cell that runs, and how much of that is left for it
to launch the job. If it begins later, it starts nothing, since the client would not learn of the job."""
_INTERVAL = 0.5
_LONGEST_NAME, _LONGEST_REASON, _LONGEST_ERROR = 60, 200, 1000


class NotebookAccelTools(Configurable):
    """What agents may do with jobs."""

    allow_writes = Bool(False, help="Whether agents may start and stop jobs, and have them save checkpoints.").tag(
        config=True
    )


def tools() -> list[str]:
    """The tools, as the entry point gives them to jupyter-server-mcp."""
    server = ServerApp.instance() if ServerApp.initialized() else None
    can_write = NotebookAccelTools(parent=server).allow_writes
    found = (list_jobs, job, explain_job, job_log, job_metrics, compare_jobs, wait_for_job)
    writing = (start_job, stop_job, checkpoint_job) if can_write else ()
    return [f"{__name__}:{tool.__name__}" for tool in (*found, *writing)]


async def list_jobs(last: int = 10) -> str:
    """Lists the last training jobs of all notebooks, newest first: ID, start, duration, ranks, name, and status.

    Args:
        last: How many jobs, at most 50.
    """
    return await _text("agent.list", last=last)


async def job(job_id: str) -> str:
    """Tells the state of a training job in some 400 tokens: progress, time left, last metrics, and what is wrong.

    Args:
        job_id: The ID, from list_jobs.
    """
    return await _text("agent.describe", job_id=job_id)


async def explain_job(job_id: str) -> str:
    """Explains why a training job has failed, is stalled, or is slow, each with its evidence.

    The evidence is the error with its traceback, stacks of stalled ranks, what filled the memory, the last lines of a
    rank, or the parts of a step.

    Args:
        job_id: The ID, from list_jobs.
    """
    return await _text("agent.explain", job_id=job_id)


async def job_log(job_id: str, rank: int | None = None, last: int = 20, search: str = "") -> str:
    """Returns the last lines that the ranks of a training job have written.

    Args:
        job_id: The ID, from list_jobs.
        rank: Only this rank's lines.
        last: How many lines, at most 200.
        search: Only lines that contain this text, in upper or lower case.
    """
    return await _text("agent.log", job_id=job_id, rank=rank, last=last, search=search)


async def job_metrics(job_id: str, metric: str, points: int = 20) -> str:
    """Returns a metric of a training job over its steps, thinned. For an unknown metric, returns the names of all.

    Args:
        job_id: The ID, from list_jobs.
        metric: The name of the metric, such as loss.
        points: How many points, at most 100.
    """
    return await _text("agent.metric", job_id=job_id, metric=metric, points=points)


async def compare_jobs(first: str, second: str) -> str:
    """Compares two training jobs: throughput, the parts of a step, memory, and the values that they reported.

    Args:
        first: The ID of the job to compare with.
        second: The ID of the job that is compared with it.
    """
    return await _text("agent.compare", first=first, second=second)


async def wait_for_job(job_id: str, until: str = "", seconds: float = 45.0) -> str:
    """Waits until a training job ends, stalls, or a metric reaches a value, and then tells its state.

    Returns after at most 50 seconds with the state, also if nothing has happened: call it again to wait on.

    Args:
        job_id: The ID, from list_jobs.
        until: A metric and a limit, such as loss<0.1.
        seconds: How long to wait.
    """
    deadline = time.monotonic() + min(max(0.0, seconds), MOST_SECONDS)
    while True:
        found = await _ask("agent.look", job_id=job_id, until=until)
        left = deadline - time.monotonic()
        if found["event"] or not left > 0:
            text: str = found["text"]
            return text
        await asyncio.sleep(min(_INTERVAL, left))


async def start_job(
    notebook: str,
    reason: str,
    function: str = "",
    cell: str = "",
    arguments: list[Any] | None = None,
    num_processes: int | None = None,
    checkpoint: str = "",
) -> str:
    """Starts a training job that runs a function or a cell of an open notebook, without waiting: see wait_for_job.

    Every rank runs it. The notebook must have run the cells that define the function, or what the cell uses. Names
    that the cell assigns stay in the ranks. The job continues if the kernel ends.

    Args:
        notebook: The path of the notebook, or its name.
        reason: Why, in a few words. The job's notes have it.
        function: The name of the function.
        cell: Instead of a function, the ID of a cell of the saved notebook, or its number, such as In[3].
        arguments: The positional arguments of the function.
        num_processes: The number of ranks; by default, one for each GPU, or up to four on the CPU.
        checkpoint: A folder for checkpoints. A job with the folder of an earlier one continues its training.
    """
    notes = f"{time.strftime('%H:%M')}: {_client()} started it: {_in_a_line(reason, _LONGEST_REASON)}"
    options = {"notes": notes, "num_processes": num_processes, "checkpoint": checkpoint or None}
    if bool(function) == bool(cell) or (cell and arguments):
        raise ValueError("give either a function, with its arguments, or a cell")
    server = ServerApp.instance()
    wanted = {"function": function, "arguments": arguments or [], "options": options}
    start = "__import__('notebook_accel.notebook.agent_launch', fromlist=['start']).start"
    try:
        if cell:
            options["name"], wanted["cell"] = await open_notebooks.cell_text(server, notebook, cell)
        request = json.dumps({**wanted, "before": time.time() + _START_SECONDS - _LAUNCH_SECONDS})
        answer = await open_notebooks.evaluate(server, notebook, f"{start}({request!r})", _START_SECONDS)
    except ValueError as error:
        raise _error(str(error)) from None
    found = json.loads(answer)
    if "error" in found:
        raise _error(found["error"])
    return await job(found["id"])


async def stop_job(job_id: str, reason: str) -> str:
    """Stops a running training job. Its ranks get a KeyboardInterrupt, and may still save; a second call kills them.

    What a training run has done since its newest checkpoint is lost: to resume it later, call checkpoint_job first.

    Args:
        job_id: The ID, from list_jobs.
        reason: Why, in a few words. The job's notes have it.
    """
    return await _text("agent.stop", job_id=job_id, who=_client(), reason=_in_a_line(reason, _LONGEST_REASON))


async def checkpoint_job(job_id: str, reason: str) -> str:
    """Has a running training job save a checkpoint, and returns its path.

    Args:
        job_id: The ID, from list_jobs.
        reason: Why, in a few words. The job's notes have it.
    """
    return await _text("agent.checkpoint", job_id=job_id, who=_client(), reason=_in_a_line(reason, _LONGEST_REASON))


async def _text(call: str, **arguments: object) -> str:
    text = await _ask(call, **arguments)
    assert isinstance(text, str)
    return text


async def _ask(call: str, **arguments: object) -> Any:
    status, body = await reader().ask(call, **arguments)
    if status >= 400:
        raise _error(body.decode())
    return json.loads(body)


def _error(text: str) -> ValueError:
    """Names of the user's, and what the agent has passed, may be in its text."""
    return ValueError(shortened(visible(text), _LONGEST_ERROR))


def _client() -> str:
    """Who asks, as the client calls itself."""
    try:
        from fastmcp.server.dependencies import get_context

        parameters: Any = get_context().session.client_params
        about = getattr(parameters, "client_info", None) or parameters.clientInfo  # before version 2 of `mcp`
        name = str(about.name)
    except Exception:  # a client may say nothing about itself
        name = ""
    return f"an agent ({_in_a_line(name, _LONGEST_NAME)})" if name else "an agent"


def _in_a_line(text: str, most: int) -> str:
    return shortened(visible(" ".join(text.split())), most)
