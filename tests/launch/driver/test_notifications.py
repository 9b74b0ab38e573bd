"""What is sent when a job ends, fails, or stalls, and that nothing waits for it."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from notebook_accel.errors import RankError
from notebook_accel.events import AttemptStarted, Location, Phase, Rule, RuleChanged, Stalled
from notebook_accel.launch.driver import notifications
from notebook_accel.launch.driver.notifications import Notification, Notifications
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.show import console


class Hook(ThreadingHTTPServer):
    """Receives what is sent; refuses the first of it, as often as told."""

    def __init__(self) -> None:
        received: queue.Queue[tuple[str, dict[str, str], bytes]] = queue.Queue()
        refusals = self.refusals = iter(())

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                received.put((self.path, dict(self.headers), body))
                self.send_response(next(self.server.refusals, 200))  # type: ignore[attr-defined]
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.received = received
        self.refusals = refusals
        self.url = f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    monkeypatch.setattr(notifications, "PAUSES", (0.0, 0.0, 0.0))
    with Hook() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def notices(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(console.current, "notice", found.append, raising=False)
    return found


def job() -> Job:
    made = Job("train", 0, 2)
    made.apply(None, AttemptStarted(0))
    return made


STALL = [Location(0, Phase.WAITING, "barrier"), Location(1, Phase.RUNNING)]


def test_json_is_sent_at_a_failure(hook: Hook) -> None:
    made = job()
    sent = Notifications(made, [f"{hook.url}/here"], {})
    made.finish(Status.FAILED, error=RankError("rank 1 of 2 raised ValueError: a\x1b[2J\nand a traceback", []))
    sent.wait()
    path, headers, body = hook.received.get_nowait()
    assert (path, headers["Content-Type"]) == ("/here", "application/json")
    found = json.loads(body)
    text = found.pop("text")
    told = {"event": "failed", "kind": "job", "id": made.id, "title": "train()", "status": "failed"}
    assert found == {"format": 1, **told}
    assert text.startswith("train() on 2 ranks: failed, ")
    assert text.endswith("\nrank 1 of 2 raised ValueError: a\\x1b[2J")


def test_a_stall_is_told_once_and_again_if_there_is_another_one(hook: Hook) -> None:
    made = job()
    sent = Notifications(made, ["slack:$HOOK"], {"HOOK": hook.url})
    for places in (STALL, STALL[::-1], [], STALL):
        made.apply(None, Stalled(places, since=made.started))
    made.finish(Status.DONE)
    sent.wait()
    texts = [json.loads(hook.received.get_nowait()[2]) for _ in range(3)]
    assert all(set(each) == {"text"} for each in texts)
    assert sum("\nno progress for " in each["text"] for each in texts) == 2
    assert hook.received.empty()


def test_a_rule_that_is_met_is_told_and_no_more_than_once_a_minute(hook: Hook) -> None:
    made = job()
    sent = Notifications(made, [hook.url], {})
    rule = Rule("loss", "pause", is_nan=True)
    made.apply(None, RuleChanged(1, rule))
    for met, number in ((1, 1), (2, 1), (1, 2)):
        made.apply(None, RuleChanged(number, rule, met=met, last=f"loss is NaN at step {number}"))
    made.apply(None, RuleChanged(2, rule, met=1, last="loss is NaN at step 2", removed=True))
    sent.wait()
    told = [json.loads(hook.received.get_nowait()[2]) for _ in range(2)]
    assert {each["event"] for each in told} == {"rule"}
    assert sorted(each["text"].splitlines()[-1] for each in told) == ["loss is NaN at step 1", "loss is NaN at step 2"]
    assert hook.received.empty()


def test_a_part_of_something_tells_of_a_stall_and_not_of_its_end(hook: Hook) -> None:
    made = Job("train", 0, 2, part_of="a sweep")
    made.apply(None, AttemptStarted(0))
    sent = Notifications(made, [hook.url], {})
    made.apply(None, Stalled(STALL, since=made.started))
    made.finish(Status.FAILED)
    sent.wait()
    assert json.loads(hook.received.get_nowait()[2])["event"] == "stalled"
    assert hook.received.empty()


def test_a_topic_gets_the_text(hook: Hook) -> None:
    made = job()
    sent = Notifications(made, [f"ntfy:{hook.url}/topic"], {})
    made.finish(Status.DONE)
    sent.wait()
    path, headers, body = hook.received.get_nowait()
    assert (path, headers["Title"]) == ("/topic", f"ended: job {made.id}")
    assert body.decode().startswith("train() on 2 ranks: done, ")


def test_what_is_refused_is_sent_again_and_then_given_up(hook: Hook, notices: list[str]) -> None:
    hook.refusals = iter([500, 500])
    made = job()
    sent = Notifications(made, [hook.url], {})
    made.finish(Status.DONE)
    sent.wait()
    assert (hook.received.qsize(), notices) == (3, [])
    hook.refusals = iter([500] * 3)
    other = job()
    sent = Notifications(other, ["$HOOK"], {"HOOK": f"{hook.url}/secret"})
    other.finish(Status.DONE)
    sent.wait()
    [notice] = notices
    assert notice.startswith("$HOOK could not be notified that train() has ended: HTTPError: HTTP Error 500: ")
    assert "secret" not in notice


def test_an_address_that_does_not_answer_holds_up_nothing(monkeypatch: pytest.MonkeyPatch, notices: list[str]) -> None:
    asked, answers = threading.Event(), threading.Event()

    def post(*_: object) -> None:
        asked.set()
        assert answers.wait(60)

    monkeypatch.setattr(notifications, "post", post)
    made = job()
    sent = Notifications(made, ["https://example.org"], {})
    made.finish(Status.DONE)
    assert made.wait(0)
    assert asked.wait(60)
    answers.set()
    sent.wait()
    assert notices == []


def test_a_function_is_called_and_its_error_is_told(notices: list[str]) -> None:
    found: list[Notification] = []

    def broken(_: Notification) -> None:
        raise RuntimeError("no phone")

    made = job()
    sent = Notifications(made, [found.append, broken], {})
    made.finish(Status.CANCELLED)
    sent.wait()
    [told] = found
    assert (told.event, told.id, told.status) == ("ended", made.id, "cancelled")
    assert notices == ["broken() could not be notified that train() has ended: RuntimeError: no phone"]
