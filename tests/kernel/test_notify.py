"""`notify=` in a notebook: of jobs that its kernel runs, and of detached ones."""

from __future__ import annotations

from tests.live_notebook import Notebook

SERVER = """
import http.server, queue, threading
received = queue.Queue()

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        received.put((self.path, self.rfile.read(int(self.headers["Content-Length"])).decode()))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
os.environ["MY_HOOK"] = f"http://127.0.0.1:{server.server_port}/a-secret"
"""


def test_a_function_and_an_address_are_told_that_a_job_has_failed(notebook: Notebook) -> None:
    notebook.check(SERVER)
    notebook.check("""
    def work():
        raise ValueError("a bad batch")

    told = queue.Queue()
    job = notebook_launcher(work, num_processes=2, block=False, notify=[told.put, "slack:$MY_HOOK"])
    """)
    assert notebook.value("(lambda found: (found.event, found.status))(told.get(timeout=60))") == ("failed", "failed")
    path, text = notebook.value("received.get(timeout=60)")
    assert path == "/a-secret"
    assert "ValueError: a bad batch" in text


def test_a_detached_job_sends_by_itself_and_no_file_of_it_has_the_secret(notebook: Notebook) -> None:
    notebook.check(SERVER)
    notebook.check("""
    import pathlib
    from notebook_accel.launch.journal import records
    job = notebook_launcher(int, num_processes=2, detach=True, notify="$MY_HOOK")
    """)
    path, text = notebook.value("received.get(timeout=60)")
    assert path == "/a-secret"
    assert '"event": "ended"' in text
    found = notebook.value("""
    folder = records.find(job.id, "").path
    [path.name for path in folder.iterdir() if b"a-secret" in path.read_bytes()], (folder / "state-0").exists()
    """)
    assert found == ([], True)


def test_mistakes_are_told_before_anything_starts(notebook: Notebook) -> None:
    cell = notebook.run("notebook_launcher(int, num_processes=2, notify=print, detach=True)")
    assert cell.error == "ConfigurationError"
    assert "notify= can't call a function of the notebook" in (cell.error_text or "")
    cell = notebook.run("notebook_launcher(int, num_processes=2, notify='slack:$NO_SUCH_HOOK')")
    assert "the environment variable NO_SUCH_HOOK is not set" in (cell.error_text or "")
