"""The answers to a log that is open in a panel."""

from __future__ import annotations

import json
from typing import Any

import pytest

from notebook_accel.launch.job.job import Job
from notebook_accel.panel import log_requests
from notebook_accel.panel.log_requests import LogRequests
from notebook_accel.panel.questions import Questions


@pytest.fixture
def job() -> Job:
    return Job("train", 0, 2)


def write(job: Job, *texts: str, rank: int = 0) -> None:
    job.output_log.add(rank, "stdout", 0, texts)


def question(**fields: Any) -> dict[str, Any]:
    default = {"rank": None, "stream": "", "level": 0, "text": "", "before": None, "after": None}
    return {"cmd": "log", "id": "1", "asker": "a", **default, **fields}


def answer(requests: Questions, **fields: Any) -> Any:
    requests.take(question(**fields))
    reply = requests.reply(at_once=True)
    return None if reply is None else reply.content


def texts(answered: Any) -> list[str]:
    return [line[-1] for line in answered["lines"]]


def test_a_question_about_new_lines_waits_for_them(job: Job) -> None:
    requests = Questions(LogRequests(job))
    write(job, "one")
    first = answer(requests)
    assert texts(first) == ["one"]
    assert answer(requests, after=first["end"], text="three") is None
    write(job, "two")
    assert requests.reply(at_once=True) is None
    write(job, "THREE")
    reply = requests.reply(at_once=True)
    assert reply is not None
    assert texts(reply.content) == ["THREE"]
    assert requests.reply(at_once=True) is None


def test_new_lines_that_are_too_many_are_the_last_of_them(job: Job) -> None:
    requests = Questions(LogRequests(job))
    for number in range(3000):
        write(job, f"line {number} {'x' * 50}")
    new = answer(requests, after=0)
    assert new["gap"]
    assert new["more"]
    assert len(json.dumps(new)) < 2 * log_requests.MOST_NEW_BYTES
    earlier = answer(requests, before=new["first"])
    assert texts(earlier)[-1].split()[1] == str(int(texts(new)[0].split()[1]) - 1)


def test_a_long_line_is_cut_and_the_text_is_whole(job: Job) -> None:
    requests = Questions(LogRequests(job))
    write(job, "x" * 10_000, rank=1)
    write(job, "other")
    assert len(texts(answer(requests))[0]) == log_requests.LONGEST_LINE + 1
    requests.take({"cmd": "log_text", "id": "2", "asker": "a", "rank": 1, "after": 0})
    reply = requests.reply(at_once=True)
    assert reply is not None
    content = reply.content
    assert reply.numbers == b"x" * 10_000 + b"\n"
    assert content["end"] == content["last"]
