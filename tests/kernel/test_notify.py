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


def test_a_rule_is_told_and_a_map_tells_of_its_end(notebook: Notebook) -> None:
    notebook.check("""
    import queue
    from notebook_accel import map_on_ranks, report, when

    def work():
        report(loss=2.0, step=1)

    told, end = queue.Queue(), queue.Queue()
    notebook_launcher(work, num_processes=2, rules=[when("loss", above=1)], notify=told.put)
    map_on_ranks(str, [1, 2, 3], num_processes=2, notify=end.put)
    """)
    found = notebook.value("{each.event: each.text for each in (told.get(timeout=60), told.get(timeout=60))}")
    assert set(found) == {"rule", "ended"}
    assert found["rule"].splitlines()[-1].startswith("loss is 2, above 1, at step 1")
    assert notebook.value("(lambda found: (found.kind, found.event))(end.get(timeout=60))") == ("job", "ended")


def test_a_sweep_tells_of_its_end_and_its_trials_do_not_of_theirs(notebook: Notebook) -> None:
    notebook.check("""
    import queue
    from notebook_accel import report, sweep

    def work(x):
        report(loss=float(x), step=1)

    told = queue.Queue()
    runs = sweep(work, {"x": [1, 2]}, notify=told.put)
    """)
    kind, event, text = notebook.value("(lambda found: (found.kind, found.event, found.text))(told.get(timeout=60))")
    assert (kind, event) == ("sweep", "ended")
    assert text == "work() in 2 trials: 2 done; best loss 1: trial 0, x=1"
    assert notebook.value("told.empty()")
