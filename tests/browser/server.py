"""A Jupyter server for one front end, in a folder of its own that goes with it."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import nbformat
from jupyter_client.blocking.client import BlockingKernelClient

from notebook_accel.launch.journal import records
from notebook_accel.launch.journal.records import Record
from tests import shared_server
from tests.browser import kernels
from tests.free_ports import free_port
from tests.live_notebook import wait_until

_STARTS_WITHIN = 240.0
_ENDS_WITHIN = 20.0
_FOLDERS = {
    "HOME": "home",
    "IPYTHONDIR": "ipython",
    "JUPYTER_CONFIG_DIR": "config",
    "JUPYTER_DATA_DIR": "data",
    "JUPYTER_PATH": "path",
    "JUPYTER_RUNTIME_DIR": "runtime",
    "JUPYTERLAB_SETTINGS_DIR": "settings",
    "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
    "TMPDIR": "tmp",
}
"""Whatever the user has in theirs must not matter, and nothing may stay in it."""
_MODULES = {"lab": "jupyterlab", "notebook": "notebook", "server": "jupyter_server"}
_SETTINGS = {
    # Else a question about news stands over the notebook.
    "@jupyterlab/apputils-extension/notification": {"checkForUpdates": False, "fetchNews": "false"},
}


class Server:
    """JupyterLab (`lab`), Notebook (`notebook`), or neither (`server`) on a port of this machine, behind a token."""

    def __init__(
        self,
        front_end: str,
        kernel_names: list[str],
        *,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.front_end = front_end
        self._home = Path(tempfile.mkdtemp(prefix="nb-"))  # short, because the paths of Unix sockets are
        self.root = self._home / "notebooks"
        for name in (*_FOLDERS.values(), self.root.name):
            (self._home / name).mkdir()
        self.forget()
        kernels.install(kernel_names, self._home / "path")
        self.token = secrets.token_hex()
        self.url = f"http://127.0.0.1:{free_port()}"
        self._log = (self._home / "log").open("wb")
        self._process = self._start(options, environment or {})
        try:
            wait_until(self._answers, _STARTS_WITHIN, lambda: f"no answer: {self.log()}")
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def _start(self, options: Sequence[str], added: Mapping[str, str]) -> subprocess.Popen[bytes]:
        command = [
            *(sys.executable, "-m", _MODULES[self.front_end], "--no-browser", "--allow-root"),
            "--ip=127.0.0.1",
            f"--port={self.url.rpartition(':')[2]}",
            "--ServerApp.port_retries=0",
            f"--ServerApp.root_dir={self.root}",
            *options,
        ]
        shared: Mapping[str, str] = {}
        if self.front_end != "server":
            command.append("--expose-app-in-browser")  # so that a test can ask it to run a cell
            shared = shared_server.environment()
        environment = {
            **os.environ,
            **{variable: str(self._home / name) for variable, name in _FOLDERS.items()},
            **shared,
            "JUPYTER_TOKEN": self.token,
            "JUPYTER_PREFER_ENV_PATH": "1",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            **added,
        }
        return subprocess.Popen(command, env=environment, stdout=self._log, stderr=self._log)

    def _answers(self) -> bool:
        assert self._process.poll() is None, f"the server has ended: {self.log()}"
        try:
            self.ask("GET", "status")
        except OSError:
            return False
        return True

    def new_notebook(self, name: str, title: str, kernel: str) -> Path:
        """A notebook with a title, in a folder of its own."""
        notebook = self.root / name / "notebook.ipynb"
        notebook.parent.mkdir()
        spec = {"name": kernel, "display_name": kernel, "language": "python"}
        cells = [nbformat.v4.new_markdown_cell(title)]
        nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": spec}), notebook)
        return notebook

    def add_kernel(self, name: str, spec: Mapping[str, Any]) -> None:
        """Adds a kernel beside those that the server began with."""
        folder = self._home / "path" / "kernels" / name
        folder.mkdir(parents=True)
        (folder / "kernel.json").write_text(json.dumps(spec))

    def address(self, notebook: Path) -> str:
        """Where a browser opens a notebook of `root`."""
        path = notebook.relative_to(self.root)
        # A workspace of its own: the default one opens again whatever was open before.
        place = f"lab/workspaces/{path.parts[0]}/tree" if self.front_end == "lab" else "notebooks"
        return f"{self.url}/{place}/{path}?token={self.token}"

    def ask(self, method: str, path: str, content: object = None) -> Any:
        """Asks the server's REST interface."""
        headers = {"Authorization": f"token {self.token}"}
        body = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(f"{self.url}/api/{path}", body, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or "null")

    def forget(self) -> None:
        """Sets the user's settings, such as the theme, to what they are at the beginning."""
        folder = self._home / "settings"
        shutil.rmtree(folder)
        for name, values in _SETTINGS.items():
            file = folder / f"{name}.jupyterlab-settings"
            file.parent.mkdir(parents=True)
            file.write_text(json.dumps(values))

    def open(self, path: str, kernel: str) -> BlockingKernelClient:
        """Opens a notebook of this path, as a front end does, and connects to its kernel."""
        wanted = {"path": path, "name": path, "type": "notebook", "kernel": {"name": kernel}}
        found = self.ask("POST", "sessions", wanted)["kernel"]["id"]
        client = BlockingKernelClient(connection_file=str(self._home / "runtime" / f"kernel-{found}.json"))
        client.load_connection_file()
        client.start_channels()
        return client

    def running_jobs(self) -> list[Record]:
        """The jobs that run."""
        return [record for record in records.all_records() if record.is_running()]

    def forget_jobs(self) -> None:
        """Removes what is recorded of jobs."""
        shutil.rmtree(records.folder())

    def layouts(self) -> str:
        """Where the front end's tabs are, as it has stored it."""
        return "".join(file.read_text() for file in (self._home / "workspaces").iterdir())

    def end_kernels(self) -> None:
        for kernel in self.ask("GET", "kernels"):
            self.ask("DELETE", f"kernels/{kernel['id']}")

    def log(self) -> str:
        """The end of what the server has said."""
        return (self._home / "log").read_text(errors="replace")[-4000:]

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()
        shutil.rmtree(self._home, ignore_errors=True)

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
