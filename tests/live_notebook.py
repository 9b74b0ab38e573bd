"""A real Jupyter kernel, driven cell by cell as a front end does."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import re
import resource
import secrets
import shutil
import sys
import tempfile
import textwrap
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
from jupyter_client.manager import KernelManager

from notebook_accel.launch.engines import base_server
from tests import shared_server

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
CELL_TIMEOUT = 60.0
UNTRAINED = "from notebook_accel.launch.engines import preloader; preloader.TRAINING = ()\n"
"""Begins the first cell of a kernel that launches no training: its servers then import torch, and no more, which saves
each of them three seconds."""
PYTHON = os.environ.get("KERNEL_PYTHON", sys.executable)
"""The interpreter that runs kernels: other environments have other versions of what makes a notebook."""
OWN_SERVER = {base_server.VARIABLE: "0"}
"""The environment of a kernel that shares no base server: it starts a fork server of its own, as do its agents."""
MARK = "NOTEBOOK_UNDER_TEST"
"""A variable that a kernel and all that it starts carry, whoever their parent has become.

A fork of the base server has taken on the kernel's environment, but the system shows the one with which the base server
was started. So each kernel also has a limit of its own: nothing needs it (`RLIMIT_MSGQUEUE`), and forks take it on.
"""


_LABEL = re.compile(r"\[([\d,-]+)\] (.*)")


def without_gloo(text: str) -> str:
    """Without what gloo of torch 2.8 to 2.10 says for itself, in C++, whenever ranks connect."""
    return "".join(line for line in text.splitlines(keepends=True) if "[Gloo] Rank " not in line)


def lines_by_rank(text: str) -> dict[int, list[str]]:
    """The lines of each rank, those that several wrote alike under each of them."""
    found = defaultdict(list)
    for line in text.splitlines():
        match = _LABEL.fullmatch(line)
        assert match is not None, f"a line without a label: {line!r}"
        for part in match[1].split(","):
            first, _, last = part.partition("-")
            for rank in range(int(first), int(last or first) + 1):
                found[rank].append(match[2])
    return found


class KernelDied(Exception):
    """The kernel has ended while a cell was waited for."""


class Cell:
    """What one cell has left below it, so far."""

    def __init__(self, message: str) -> None:
        self.message = message
        """The name of the request that runs it."""
        self.value: str | None = None
        """The text of its last expression."""
        self.displays: list[str] = []
        """The text of each display, as last updated."""
        self.bundles: list[dict[str, str]] = []
        """All that each display holds, by its type, as last updated."""
        self.widgets: list[str] = []
        """The widgets that displays have held, also those that something else has replaced since."""
        self._order: list[str | int] = []
        """The texts that were written, and the indices of displays, in the order in which they came."""
        self.error: str | None = None
        """The name of its exception."""
        self.error_text = ""
        self.traceback = ""
        self.ended = False
        self._began = time.monotonic()
        self.seconds = 0.0
        """How long it ran, once it has ended."""
        self._said: dict[str, list[str]] = {"stdout": [], "stderr": []}

    def note_widget(self, bundle: dict[str, Any]) -> None:
        if view := bundle.get("application/vnd.jupyter.widget-view+json"):
            self.widgets.append(view["model_id"])

    def take(self, kind: str, content: dict[str, Any]) -> None:
        if kind == "stream":
            self._said[content["name"]].append(content["text"])
            self._order.append(content["text"])
        elif kind == "execute_result":
            self.value = content["data"]["text/plain"]
        elif kind == "display_data":
            self.displays.append(content["data"].get("text/plain", ""))
            self.bundles.append(content["data"])
            self.note_widget(content["data"])
            self._order.append(len(self.bundles) - 1)
        elif kind == "error":
            self.error, self.error_text = content["ename"], content["evalue"]
            self.traceback = _ANSI.sub("", "\n".join(content["traceback"]))
        elif kind == "status" and content["execution_state"] == "idle":
            self.ended, self.seconds = True, time.monotonic() - self._began

    @property
    def stdout(self) -> str:
        return without_gloo(self._joined("stdout"))

    @property
    def stderr(self) -> str:
        return self._joined("stderr")

    @property
    def lines(self) -> list[str]:
        return self.stdout.splitlines()

    def ranks_that_wrote(self, words: str) -> set[int]:
        """The ranks that have written a line with these words; whether in the same moment does not matter."""
        lines = [line for line in self.lines if _LABEL.match(line)]
        return {rank for rank, said in lines_by_rank("\n".join(lines)).items() if any(words in line for line in said)}

    def in_order(self, type: str = "text/html") -> list[str]:
        """The lines, and the displays that are not empty as they are now, in their order.

        Args:
            type: The MIME type in which a display that has it is told; the others are told as plain text.
        """
        found = [""]
        for each in self._order:
            if isinstance(each, str):
                found[-1] += each
            elif text := self.bundles[each].get(type, self.displays[each]):
                found += [text, ""]
        lines = [
            line
            for part, is_text in zip(found, itertools.cycle([True, False]))
            for line in (part.splitlines() if is_text else [part])
        ]
        return [line for line in lines if line]

    @property
    def text(self) -> str:
        """All that stands below it, but for its value and its error."""
        return self.stdout + self.stderr + "".join(self.displays)

    def _joined(self, stream: str) -> str:
        self._said[stream][:] = ["".join(self._said[stream])]
        return self._said[stream][0]

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={self._joined(name)[-2000:]!r}" for name in self._said)
        return f"<Cell {'ended' if self.ended else 'running'}, {said}, {self.value=}, {self.error=}, {self.displays=}>"


class Notebook:
    """A kernel and its client."""

    def __init__(
        self,
        *,
        cwd: str | os.PathLike[str] | None = None,
        state: str | None = None,
        env: Mapping[str, str | None] | None = None,
        wrapper: Sequence[str] = (),
    ) -> None:
        """Starts a kernel.

        Args:
            cwd: Where the notebook lies; by default in an empty folder.
            state: Where its jobs are recorded; by default in a folder of its own.
            env: What differs from this process's environment; `None` removes a variable. A kernel that differs shares
                no base server.
            wrapper: A command that the kernel's own command follows. Such a kernel shares none, either.
        """
        self.mark = uuid.uuid4().hex
        self._limit = 1 + secrets.randbelow(800_000)
        self._home = tempfile.mkdtemp(prefix="nb-")  # short, because the paths of Unix sockets are
        folder = os.path.join(self._home, "notebook")
        os.mkdir(folder)
        self.state = state or os.path.join(self._home, "state")
        """Where its jobs are recorded."""
        server: Mapping[str, str] = {"TMPDIR": self._home} if wrapper or env else shared_server.environment(PYTHON)
        self.temporary = server["TMPDIR"]
        """Where this kernel, and all that comes from it, writes temporary files."""
        changes = {MARK: self.mark, **server, "NOTEBOOK_ACCEL_STATE": self.state, **(env or {})}
        self._options: dict[str, Any] = {
            "cwd": str(cwd or folder),
            "env": {name: value for name, value in {**os.environ, **changes}.items() if value is not None},
        }
        self._cells: dict[str, Cell] = {}
        self._displays: dict[str, tuple[Cell, int]] = {}
        self.widgets: dict[str, list[tuple[str, dict[str, Any], list[bytes]]]] = {}
        """What was said to each widget's half in the browser: the message's type, its data, its buffers."""
        # Unix sockets: TCP is not encrypted, of which a kernel warns.
        self.manager = KernelManager(
            kernel_name="python3", transport="ipc", connection_file=os.path.join(self._home, "kernel.json")
        )
        assert self.manager.kernel_spec is not None
        self.manager.kernel_spec.argv = [*wrapper, PYTHON, *self.manager.kernel_spec.argv[1:]]
        self.manager.start_kernel(**self._options)
        try:
            self._mark()
            self._connect()
        except BaseException:
            self.close()
            self.clean()
            raise

    def _mark(self) -> None:
        """Has it, and all that comes from it, carry the mark of its limit."""
        hard = resource.prlimit(self.pid, resource.RLIMIT_MSGQUEUE)[1]
        resource.prlimit(self.pid, resource.RLIMIT_MSGQUEUE, (self._limit, hard))

    def _connect(self) -> None:
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=CELL_TIMEOUT)

    # Cells

    def run(self, code: str, *, timeout: float = CELL_TIMEOUT) -> Cell:
        """Runs a cell to its end, which may be an error."""
        return self.finish(self.begin(code), timeout=timeout)

    def check(self, code: str, *, timeout: float = CELL_TIMEOUT) -> Cell:
        """Runs a cell that must not fail."""
        cell = self.run(code, timeout=timeout)
        assert cell.error is None, cell.traceback
        return cell

    def value(self, code: str, *, timeout: float = CELL_TIMEOUT) -> Any:
        """The value of a cell's last expression, if `repr` can tell it."""
        text = self.check(code, timeout=timeout).value
        assert text is not None, "the cell has no value"
        return eval(text, {"__builtins__": {}})

    def begin(self, code: str) -> Cell:
        """Starts a cell."""
        # After an error, ipykernel 6 would abort a request that comes at once.
        message = self.client.execute(textwrap.dedent(code), stop_on_error=False)
        cell = self._cells[message] = Cell(message)
        return cell

    def begin_in_browser(self, code: str) -> Cell:
        """Starts a cell as JupyterLab does: the request tells which cell it is."""
        content = {"code": textwrap.dedent(code), "silent": False, "store_history": True, "allow_stdin": False}
        message = self.client.session.msg("execute_request", content, metadata={"cellId": "a-cell"})
        self.client.shell_channel.send(message)
        cell = self._cells[message["header"]["msg_id"]] = Cell(message["header"]["msg_id"])
        return cell

    def say(self, widget: str, content: dict[str, Any]) -> None:
        """Says something to a widget's other half in the kernel, as the browser does."""
        data = {"comm_id": widget, "data": {"method": "custom", "content": content}}
        self.client.shell_channel.send(self.client.session.msg("comm_msg", data))

    def say_while_busy(self, widget: str, content: dict[str, Any]) -> None:
        """Says something to a panel on the control channel, as its script does."""
        data = {"target_name": "notebook-accel", "notebook_accel": {"panel": widget, "content": content}}
        self.client.control_channel.send(self.client.session.msg("comm_info_request", data))

    def finish(self, cell: Cell, *, timeout: float = CELL_TIMEOUT) -> Cell:
        """Waits for the end of a cell."""
        self.wait_until(lambda: cell.ended, timeout)
        return cell

    def read_until(self, cell: Cell, text: str, *, timeout: float = CELL_TIMEOUT) -> Cell:
        """Waits until a text stands below a cell, which may have ended (a job may go on)."""
        self.wait_until(lambda: text in cell.text or (cell.error is not None and cell.ended), timeout)
        assert text in cell.text, cell.traceback
        return cell

    def read_until_ranks_wrote(self, cell: Cell, words: str, ranks: int, *, timeout: float = CELL_TIMEOUT) -> Cell:
        """Waits until each of so many ranks has written a line with these words."""
        self.wait_until(
            lambda: len(cell.ranks_that_wrote(words)) == ranks or (cell.error is not None and cell.ended), timeout
        )
        assert len(cell.ranks_that_wrote(words)) == ranks, cell
        return cell

    def merge_within(self, seconds: float) -> None:
        """Has what several ranks show alike shown once if it is so far apart: a busy machine may start one late."""
        merger, output = (f"sys.modules['notebook_accel.launch.show.{name}']" for name in ("line_merger", "output"))
        self.check(f"import sys\n{merger}.MERGE_WINDOW = {output}.DISPLAY_WINDOW = {seconds}")

    def read_while(self, condition: Callable[[], bool], *, timeout: float = CELL_TIMEOUT) -> None:
        """Takes in what the kernel says while a condition holds."""
        self.wait_until(lambda: not condition(), timeout)

    def wait_until(self, condition: Callable[[], bool], timeout: float) -> None:
        """Takes in what the kernel says until a condition holds."""
        deadline = time.monotonic() + timeout
        while not condition():
            left = deadline - time.monotonic()
            if left <= 0:
                cells = "\n".join(repr(cell)[:4000] for cell in self._cells.values() if not cell.ended)
                raise TimeoutError(f"not within {timeout:g} s. Cells that run:\n{cells}")
            try:
                found = self.client.get_iopub_msg(timeout=min(left, 1.0))
            except queue.Empty:
                if not self.manager.is_alive():
                    raise KernelDied(f"the kernel has ended: {self.manager.provisioner}") from None
                continue
            self._take(found)

    def _take(self, found: dict[str, Any]) -> None:
        kind, content = found["msg_type"], found["content"]
        display_id = content.get("transient", {}).get("display_id")
        if kind == "update_display_data":
            if display_id in self._displays:
                cell, index = self._displays[display_id]
                cell.displays[index] = content["data"].get("text/plain", "")
                cell.bundles[index] = content["data"]
                cell.note_widget(content["data"])
            return
        if kind in ("comm_open", "comm_msg", "comm_close"):
            buffers = [bytes(buffer) for buffer in found["buffers"]]
            self.widgets.setdefault(content["comm_id"], []).append((kind, content.get("data", {}), buffers))
            return
        cell = self._cells.get(found["parent_header"].get("msg_id", ""))
        if cell is None:
            return
        cell.take(kind, content)
        if kind == "display_data" and display_id is not None:
            self._displays[display_id] = (cell, len(cell.displays) - 1)

    # The kernel

    @property
    def pid(self) -> int:
        return self.manager.provisioner.pid

    def interrupt(self) -> None:
        self.manager.interrupt_kernel()

    def restart(self) -> None:
        self.client.stop_channels()
        self._cells.clear()
        self.manager.restart_kernel(now=False, **self._options)
        self._mark()
        self._connect()

    def shut_down(self) -> None:
        """Lets the kernel end, as a front end asks it to."""
        self.manager.shutdown_kernel(now=False)

    def is_usable(self) -> bool:
        """Whether it is alive and free: a cell runs at once."""
        with contextlib.suppress(TimeoutError, KernelDied, AssertionError):
            return self.manager.is_alive() and self.value("6 * 7", timeout=5) == 42
        return False

    def close(self) -> None:
        """Ends the kernel at once. What it started must end by itself."""
        self.client.stop_channels()
        if self.manager.has_kernel:
            self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()

    def clean(self) -> None:
        """Removes its folder."""
        shutil.rmtree(self._home, ignore_errors=True)

    # Processes

    def processes(self) -> list[psutil.Process]:
        """All that comes from the kernel, whoever their parent has become; not the kernel itself."""
        found = [process for process in _marked(self.mark, self._limit) if process.pid != self.pid_or_none()]
        return [process for process in found if not shared_server.is_base(process)]

    def pids(self) -> set[int]:
        return {process.pid for process in self.processes()}

    def pid_or_none(self) -> int | None:
        return self.pid if self.manager.has_kernel else None

    def launched(self) -> list[psutil.Process]:
        """Ranks, and what they have started: all but the servers, their stores and their spare forks.

        Those write to the server's log, a file without a name; a rank writes to a pipe.
        """
        found = [process for process in self.processes() if not _output(process).endswith("(deleted)")]
        return [process for process in found if _lives(process)]

    def servers(self) -> list[psutil.Process]:
        """The servers, their stores and their spare forks."""
        return [process for process in self.processes() if _output(process).endswith("(deleted)")]


def wait_until(
    condition: Callable[[], object], timeout: float = 45, what: str | Callable[[], str] = "it has not come true"
) -> None:
    """Waits for something that nobody announces. The timeout is for what never comes; no test of speed uses it."""
    deadline = time.monotonic() + timeout
    pause = 0.005
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what() if callable(what) else what}, after {timeout:g} s")
        time.sleep(pause)
        pause = min(2 * pause, 0.08)  # some conditions read all of /proc


def _marked(mark: str, limit: int) -> list[psutil.Process]:
    """The processes that carry it. Tests ask a hundred times a second, which would cost psutil a third of a core."""
    found = []
    entry = f"{MARK}={mark}\0".encode()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(psutil.Error, OSError):
            environ = Path("/proc", name, "environ").read_bytes()
            if entry in environ or (environ and resource.prlimit(int(name), resource.RLIMIT_MSGQUEUE)[0] == limit):
                found.append(psutil.Process(int(name)))
    return found


def _output(process: psutil.Process) -> str:
    """Where its standard output goes; empty once it has ended."""
    try:
        return os.readlink(f"/proc/{process.pid}/fd/1")
    except OSError:
        return ""


def _lives(process: psutil.Process) -> bool:
    """Whether it has not begun to end: it then loses its memory first, and after that the files that it is known by."""
    try:
        return bool(Path(f"/proc/{process.pid}/environ").read_bytes())
    except OSError:
        return False
