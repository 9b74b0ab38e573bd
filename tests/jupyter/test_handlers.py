"""A real Jupyter server with the extension: who may ask, and what is answered."""

from __future__ import annotations

import http.cookiejar
import json
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from jupyter_core.paths import jupyter_path
from jupyterlab.extensions.manager import ExtensionManager

import notebook_accel
from notebook_accel.launch.journal import pages
from tests.browser.server import Server
from tests.jupyter.conftest import RecordedJob, end
from tests.live_notebook import wait_until

NO_SERVER = """
import sys
sys.modules["jupyter_server"] = sys.modules["tornado"] = None  # as if they were not installed
import notebook_accel.jupyter, notebook_accel.jupyter.reader.job_list
print(notebook_accel.jupyter.__name__)
"""


@pytest.fixture(scope="module")
def server(state: Path) -> Iterator[Server]:
    with Server("server", []) as found:
        yield found


def ask(
    server: Server, method: str, path: str = "", what: str = "jobs", *, body: bytes | None = None, **headers: str
) -> tuple[int, Any]:
    """The status and the body of an answer; by default, who asks has the server's token."""
    headers = headers or {"Authorization": f"token {server.token}"}
    address = f"{server.url}/notebook-accel/{what}{path}"
    request = urllib.request.Request(address, body, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read() or "null")
    except urllib.error.HTTPError as error:
        with error:
            body = error.read()
        return error.code, json.loads(body) if body.startswith(b"{") else body


def test_jobs_are_listed_stopped_and_deleted(server: Server) -> None:
    job = RecordedJob("<img src=x>")
    status, listing = ask(server, "GET")
    assert status == 200
    [row] = [each for each in listing["jobs"] if each["id"] == job.job.id]
    assert (row["title"], row["live"]) == ("<img src=x>", True)
    assert ask(server, "PATCH", f"/{job.job.id}", body=b'{"title": "wide"}') == (204, None)
    assert "wide" in [each["title"] for each in ask(server, "GET")[1]["jobs"]]
    assert [ask(server, "PATCH", f"/{job.job.id}", body=each)[0] for each in (b"[]", b'{"title": 7}')] == [400, 400]
    assert ask(server, "DELETE", f"/{job.job.id}") == (
        409,
        {"message": f"job {job.job.id} is running: stop it first", "reason": None},
    )
    assert ask(server, "POST", f"/{job.job.id}/stop") == (204, None)
    assert job.record.stop_requests() == 1
    end(job)
    assert ask(server, "DELETE", f"/{job.job.id}") == (204, None)
    assert not job.record.path.exists()
    status, answer = ask(server, "DELETE", f"/{job.job.id}")
    assert (status, "there is no job" in answer["message"]) == (404, True)


def test_runs_are_compared_for_who_is_logged_in(server: Server) -> None:
    jobs = [RecordedJob(name) for name in ("wide", "deep")]
    for job in jobs:
        job.reach(1, 2.0, name="a&b <i>")
        end(job)
    query = "?" + urllib.parse.urlencode([*(("job", job.job.id) for job in jobs), ("metric", "a&b <i>")])
    status, found = ask(server, "GET", query, "comparison")
    assert (status, [run["curves"]["a&b <i>"]["mean"] for run in found["runs"]]) == (200, [[2.0], [2.0]])
    assert ask(server, "GET", query, "comparison", Authorization="token 0")[0] == 403
    assert ask(server, "GET", "?metric=loss", "comparison")[0] == 400


def test_a_panel_is_sent_to_who_is_logged_in(server: Server) -> None:
    job = RecordedJob()
    path = f"/{job.job.id}/panel"
    content = {"panel": "p", "seq": -1, "messages": []}
    status, update = ask(server, "POST", path, body=json.dumps(content).encode())
    assert (status, update["state"]["head"]["name"]) == (200, "train()")
    refused = [b"", b"[]", b'{"panel": "p"}', json.dumps({**content, "messages": [{"cmd": "stop"}]}).encode()]
    assert [ask(server, "POST", path, body=each)[0] for each in refused] == [400] * 4
    assert ask(server, "POST", path, body=b" " * 2**21)[0] == 413
    end(job)


def test_a_page_announces_itself_and_finds_the_outputs_that_it_lost(server: Server, state: Path) -> None:
    session = "6f1c5a3e-0b1d-4c52-9a53-7b0c1c7f7f10"
    assert ask(server, "POST", f"/{session}", "pages") == (204, None)
    assert pages.draws_jobs(session)
    assert ask(server, "POST", f"/{session}", "pages", Authorization="token 0")[0] == 403
    assert ask(server, "POST", "/..%2Fjobs", "pages")[0] == 404
    job = RecordedJob()
    drawn = {"cmd": "drawn", "notebook": "a b/ä.ipynb", "cell": "1c2b"}
    content = {"panel": "p", "seq": -1, "messages": [drawn, {"cmd": "output"}]}
    status, update = ask(server, "POST", f"/{job.job.id}/panel", body=json.dumps(content).encode())
    assert (status, set(update["output"])) == (200, {"text/html", "text/plain"})
    assert job.record.is_watched()
    query = "?" + urllib.parse.urlencode({"notebook": drawn["notebook"]})
    [found] = ask(server, "GET", query, "outputs")[1]
    assert (found["job"], found["cell"]) == (job.job.id, "1c2b")
    assert ask(server, "GET", "?notebook=other.ipynb", "outputs") == (200, [])
    end(job)


def test_who_is_not_logged_in_gets_nothing(server: Server) -> None:
    job = RecordedJob()
    wrong = {"Authorization": "token 0"}
    paths = [
        ("GET", ""),
        ("POST", f"/{job.job.id}/stop"),
        ("POST", f"/{job.job.id}/panel"),
        ("PATCH", f"/{job.job.id}"),
        ("DELETE", f"/{job.job.id}"),
    ]
    assert [ask(server, *each, **wrong)[0] for each in paths] == [403] * 5
    assert job.record.stop_requests() == 0
    end(job)
    assert ask(server, "DELETE", f"/{job.job.id}", **wrong)[0] == 403
    assert job.record.path.exists()


def test_a_page_of_another_site_changes_nothing(server: Server) -> None:
    """It has the user's cookie, but not the token that goes with it."""
    job = RecordedJob()
    cookies = http.cookiejar.CookieJar()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(cookies))
    browser.open(f"{server.url}/login?token={server.token}", timeout=30).close()
    by_name = {cookie.name: str(cookie.value) for cookie in cookies}
    cookie = "; ".join(f"{name}={value}" for name, value in by_name.items())
    assert ask(server, "GET", Cookie=cookie, Referer=f"{server.url}/lab")[0] == 200
    assert ask(server, "POST", f"/{job.job.id}/stop", Cookie=cookie)[0] == 403
    assert ask(server, "POST", f"/{job.job.id}/panel", Cookie=cookie)[0] == 403
    assert ask(server, "DELETE", f"/{job.job.id}", Cookie=cookie)[0] == 403
    assert job.record.stop_requests() == 0
    own = {"Cookie": cookie, "X-XSRFToken": by_name["_xsrf"], "Referer": f"{server.url}/lab"}
    assert ask(server, "POST", f"/{job.job.id}/stop", **own)[0] == 204
    end(job)


@pytest.mark.parametrize("name", ["..%2F..%2Fetc", "%2e%2e", "*", "ABCDEF", "0123456789abc", "%2Fetc%2Fpasswd"])
def test_what_is_no_id_has_no_address(server: Server, name: str) -> None:
    assert [ask(server, "DELETE", f"/{name}")[0], ask(server, "POST", f"/{name}/stop")[0]] == [404, 404]


def test_asking_for_jobs_does_not_keep_an_idle_server_awake(server: Server) -> None:
    before = server.ask("GET", "status?no_track_activity=1")["last_activity"]
    assert ask(server, "GET")[0] == 200
    assert server.ask("GET", "status?no_track_activity=1")["last_activity"] == before


def readers(server: Server) -> list[psutil.Process]:
    def command(process: psutil.Process) -> str:
        try:
            return " ".join(process.cmdline())
        except psutil.Error:  # it has ended, though its parent has not noticed yet
            return ""

    return [each for each in psutil.Process(server.pid).children() if "jupyter.reader" in command(each)]


def test_whether_a_job_runs_is_told_without_a_process_that_reads(server: Server) -> None:
    for reader in readers(server):
        reader.kill()
    wait_until(lambda: not readers(server), 20)
    found = []
    for _ in range(2):
        found.append(ask(server, "GET", what="running"))
        job = RecordedJob()
        found.append(ask(server, "GET", what="running"))
        end(job)
    assert found == [(200, False), (200, True)] * 2
    assert ask(server, "GET", what="running", Authorization="token 0")[0] == 403
    assert not readers(server)
    assert ask(server, "GET")[0] == 200
    assert len(readers(server)) == 1


def test_the_devices_are_measured_for_who_is_logged_in(server: Server) -> None:
    before = server.ask("GET", "status?no_track_activity=1")["last_activity"]
    status, listing = ask(server, "GET", what="devices")
    assert (status, listing["problem"]) == (200, "")
    machine = listing["devices"][0]
    assert [gauge["name"] for gauge in machine["gauges"]][:2] == ["CPU", "memory"]
    assert ask(server, "GET", what="devices", Authorization="token 0")[0] == 403
    assert server.ask("GET", "status?no_track_activity=1")["last_activity"] == before


def test_jupyterlab_finds_the_extension_of_this_version() -> None:
    """The server's extension is found where it is installed, too: `Server` doesn't name it."""
    folders = [Path(folder, "notebook-accel") for folder in jupyter_path("labextensions")]
    [installed] = [folder for folder in folders if folder.is_dir()]
    package = json.loads((installed / "package.json").read_text())
    assert package["version"] == ExtensionManager.get_semver_version(notebook_accel.__version__), "build extension/"
    assert (installed / package["jupyterlab"]["_build"]["load"]).is_file()
    assert json.loads((installed / "install.json").read_text())["packageName"] == "notebook-accel"


def test_the_package_needs_no_jupyter_server() -> None:
    found = subprocess.run([sys.executable, "-c", NO_SERVER], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "notebook_accel.jupyter"
