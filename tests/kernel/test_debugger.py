"""JupyterLab's debugger on ranks: what it sends to a real kernel, and what it gets back."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kernel.conftest import end
from tests.live_notebook import CELL_TIMEOUT, Cell, Notebook, wait_until

PREPARE = "import torch\nimport torch.distributed as dist\n"


class Debugger:
    """The debugger of a front end."""

    def __init__(self, notebook: Notebook) -> None:
        self.notebook = notebook
        self._number = 0
        self._is_on = False

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Sends a request; returns the body of its response."""
        client = self.notebook.client
        self._number += 1
        content = {"type": "request", "seq": self._number, "command": command, "arguments": arguments}
        request = client.session.msg("debug_request", content)
        client.control_channel.send(request)
        while True:
            reply = client.control_channel.get_msg(timeout=CELL_TIMEOUT)
            if reply["parent_header"].get("msg_id") == request["header"]["msg_id"]:
                assert reply["content"]["success"], reply["content"]
                body: dict[str, Any] = reply["content"].get("body") or {}
                return body

    def turn_on(self) -> None:
        self.ask("initialize", adapterID="python", pathFormat="path")
        self.ask("attach")
        self._is_on = True

    def turn_off(self) -> None:
        if self._is_on:
            self.ask("disconnect")
        self._is_on = False

    def break_at(self, code: str, *lines: int) -> None:
        path = self.ask("dumpCell", code=textwrap.dedent(code))["sourcePath"]
        self.ask("setBreakpoints", source={"path": path}, breakpoints=[{"line": line} for line in lines])

    def begin(self, code: str, *lines: int) -> Cell:
        """Runs a cell with breakpoints until both ranks are held."""
        self.break_at(code, *lines)
        cell = self.notebook.begin(code)
        wait_until(lambda: len(self.frames()) == 2, CELL_TIMEOUT)
        return cell

    def frames(self) -> list[dict[str, Any]]:
        """The frames of the ranks that are held, the innermost of each; those of the current rank come first."""
        stopped = self.ask("debugInfo")["stoppedThreads"]
        if not stopped:
            return []
        frames = self.ask("stackTrace", threadId=stopped[0])["stackFrames"]
        ranks = [frame["name"].partition(":")[0] for frame in frames]
        return [frame for frame, rank in zip(frames, ranks, strict=True) if ranks.index(rank) == frames.index(frame)]

    def lines(self) -> list[tuple[str, int]]:
        return [(frame["name"], frame["line"]) for frame in self.frames()]

    def variable(self, frame: dict[str, Any], name: str) -> str:
        scopes = self.ask("scopes", frameId=frame["id"])["scopes"]
        found = self.ask("variables", variablesReference=scopes[0]["variablesReference"])["variables"]
        return next(str(each["value"]) for each in found if each["name"] == name)

    def wait_for(self, *lines: tuple[str, int]) -> None:
        wait_until(lambda: sorted(self.lines()) == [*lines], CELL_TIMEOUT, lambda: str(self.lines()))

    def finish(self, cell: Cell) -> Cell:
        self.ask("continue", threadId=1)
        return self.notebook.finish(cell)


@pytest.fixture(scope="module")
def kernel() -> Iterator[Notebook]:
    notebook = Notebook()
    notebook.check("import notebook_accel")
    notebook.check(f"%%accelerate -n 2\n{PREPARE}")
    notebook.merge_within(30)
    yield notebook
    end(notebook)


@pytest.fixture
def debugger(kernel: Notebook) -> Iterator[Debugger]:
    found = Debugger(kernel)
    found.turn_on()
    yield found
    found.turn_off()


def test_ranks_are_held_looked_at_and_stepped_one_by_one(debugger: Debugger):
    """Long: debugpy starts in the kernel and in two ranks."""
    code = """\
    %%accelerate
    x = rank * 10
    total = torch.ones(1)
    dist.all_reduce(total)
    print("total", int(total))
    """
    cell = debugger.begin(code, 4)
    first, second = sorted(debugger.frames(), key=lambda frame: str(frame["name"]))
    assert sorted(debugger.lines()) == [("rank 0: <module>", 4), ("rank 1: <module>", 4)]
    assert (debugger.variable(first, "x"), debugger.variable(second, "x")) == ("0", "10")
    shown = debugger.ask("richInspectVariables", variableName="x", frameId=second["id"])
    assert shown["data"]["text/plain"] == "10"
    assert debugger.ask("evaluate", expression="x + 1", frameId=second["id"])["result"] == "11"

    debugger.variable(first, "x")  # looks at rank 0
    debugger.ask("next", threadId=1)  # which waits for rank 1
    debugger.wait_for(("rank 1: <module>", 4))
    debugger.ask("next", threadId=1)
    debugger.wait_for(("rank 0: <module>", 5), ("rank 1: <module>", 5))
    assert "total" not in cell.stdout
    assert debugger.finish(cell).lines == ["[0-1] total 2"]

    cell = debugger.begin(code, 4)
    debugger.notebook.interrupt()
    assert debugger.notebook.finish(cell).error == "KeyboardInterrupt"
    cell = debugger.begin("%%accelerate\ny = 1\nbreakpoint()\nprint(y)")  # after an interrupt, too
    debugger.turn_off()
    assert debugger.notebook.finish(cell).lines == ["[0-1] 1"]
    assert debugger.notebook.check(textwrap.dedent(code)).lines == ["[0-1] total 2"]


def test_a_launch_is_held_beyond_its_timeout_and_a_worker_is_not(debugger: Debugger):
    """Long: debugpy starts in two ranks, and 2 s have to pass for which they are held."""
    code = """\
    from notebook_accel import notebook_launcher
    import datetime, os, time

    def train():
        import torch.distributed as dist  # in the kernel, debugpy would trace the import for a minute
        dist.init_process_group("gloo")
        group = dist.new_group(timeout=datetime.timedelta(seconds=1))
        if dist.get_rank() == 0:
            held()
        dist.barrier(group)
        child = os.fork()
        if child == 0:
            held()
            os._exit(5)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def held():
        now = time.monotonic()
        return now

    print(notebook_launcher(train, num_processes=2, device="cpu", timeout=20, stall_after=1))
    """
    debugger.break_at(code, 19)
    cell = debugger.notebook.begin(code)
    wait_until(lambda: debugger.lines()[:1] == [("rank 0: held", 19)], CELL_TIMEOUT, lambda: str(debugger.lines()))
    with pytest.raises(TimeoutError):
        debugger.notebook.finish(cell, timeout=2)
    assert "stalled" not in cell.text
    assert debugger.finish(cell).stdout.split() == ["[5,", "5]"]


def test_a_server_that_starts_while_the_debugger_is_on_is_not_held(debugger: Debugger):
    """It starts a detached job, too, whose driver is another such process."""
    debugger.notebook.check("""
    import os, signal
    from notebook_accel import notebook_launcher

    def parent():
        return os.getppid()

    [server] = notebook_launcher(parent, num_processes=1, device="cpu")
    os.kill(server, signal.SIGKILL)
    """)
    found = "[after] = notebook_launcher(parent, num_processes=1, device='cpu'); after"
    assert int(debugger.notebook.check(found).value or 0) != debugger.notebook.value("server")
    debugger.notebook.check("job = notebook_launcher(parent, num_processes=1, device='cpu', detach=True)")
    assert len(debugger.notebook.value("job.result(30)")) == 1
