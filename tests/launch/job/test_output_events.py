"""What ranks have written and displayed, as whoever attaches to their job is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from notebook_accel.events import AttemptStarted, Cleared, Event, Lines, Notice, Shown
from notebook_accel.launch.job import output_events
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.output_events import OutputTail
from notebook_accel.launch.journal import log_files
from notebook_accel.launch.journal.log_files import LogFiles
from tests.launch.journal.cases import displayed


class Files:
    """The files of a job's log."""

    def __init__(self, folder: Path) -> None:
        self.log, self.contents = LogFiles(folder), LogFiles(folder, "displays", 10_000)

    def save(self, job: Job) -> None:
        job.output_log.contents.save(self.contents)
        job.output_log.save(self.log)

    def follow(self, job: Job) -> OutputTail:
        job.output_log.contents.follow(self.contents)
        job.output_log.follow(self.log)
        return OutputTail(job)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture
def job() -> Job:
    return Job("train", 4, 2)


def said(tail: OutputTail) -> list[tuple[int, Event | str]]:
    """What a reader is told; of a rich output, its text."""
    return [(rank, _text(event) if isinstance(event, Shown) else event) for rank, event in tail.read(tail.end())]


def _text(shown: Shown) -> str:
    text = str(json.loads(shown.bundle[0])["data"]["text/plain"]) if shown.bundle else "hidden"
    return f"{shown.display_id} := {text}" if shown.update else text


def follower(job: Job) -> Job:
    other = Job("", 0, 0)
    other.restore(list(job.events()))
    return other


def test_what_ranks_write_and_display_comes_in_the_order_in_which_it_came(job: Job, files: Files) -> None:
    job.apply(0, Lines("stdout", ["a", "b"]))
    job.apply(1, Shown(bundle=displayed("picture")))
    job.apply(0, Lines("stdout", ["c"]))
    job.apply(None, Notice("starting\nagain"))
    files.save(job)
    tail = files.follow(follower(job))
    assert said(tail) == [(4, Lines("stdout", ["a", "b"])), (5, "picture"), (4, Lines("stdout", ["c"])),
                          (0, Notice("starting\nagain"))]  # fmt: skip
    assert said(tail) == []
    job.apply(0, Lines("stderr", ["d"]))
    job.apply(0, Cleared(wait=True))
    job.apply(0, Shown())
    files.save(job)
    assert said(tail) == [(4, Lines("stderr", ["d"])), (4, Cleared(wait=True)), (4, "hidden")]


def test_at_first_what_was_displayed_is_as_the_ranks_have_left_it(job: Job, files: Files) -> None:
    job.apply(0, Shown("plot", bundle=displayed("first")))
    job.apply(0, Lines("stdout", ["between"]))
    job.apply(0, Shown("plot", update=True, bundle=displayed("last")))
    job.apply(0, Shown("of the notebook", update=True, bundle=displayed("new")))
    for clear in (Cleared(), Cleared(wait=True)):
        job.apply(1, Shown(bundle=displayed("gone")))
        job.apply(1, clear)
    job.apply(1, Shown(bundle=displayed("stays")))
    job.apply(1, Cleared(wait=True))
    files.save(job)
    tail = files.follow(follower(job))
    assert said(tail) == [(4, "last"), (4, Lines("stdout", ["between"])), (4, "of the notebook := new"), (5, "stays"),
                          (5, Cleared(wait=True))]  # fmt: skip
    job.apply(0, Shown("plot", update=True, bundle=displayed("later")))
    files.save(job)
    assert said(tail) == [(4, "plot := later")]


def test_a_plot_that_was_updated_for_long_is_shown(job: Job, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_events, "MOST_BYTES", 1000)
    job.apply(0, Shown("plot", bundle=displayed("first")))
    for number in range(100):
        job.apply(0, Shown("plot", update=True, bundle=displayed(str(number))))
    files.save(job)
    assert said(files.follow(follower(job))) == [(4, "99")]


def test_of_older_rich_outputs_the_text_stays(job: Job, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "FILE_SIZE", 1000)
    texts = [f"{number} {'x' * 1000}" for number in range(30)]
    for text in texts:
        job.apply(0, Shown(bundle=displayed(text)))
        files.save(job)
    found = [text for _, text in said(files.follow(follower(job))) if isinstance(text, str)]
    assert [text[:500] for text in found] == [text[:500] for text in texts]
    assert found[-5:] == texts[-5:]
    assert len(found[0]) == 500
    assert job.log() == ""


def test_a_reader_that_is_behind_passes_over_lines_and_knows_it(
    job: Job, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_events, "MOST_BYTES", 1000)
    job.apply(0, Lines("stdout", ["first"]))
    files.save(job)
    tail = files.follow(follower(job))
    said(tail)
    assert not tail.has_left_out
    job.apply(0, Lines("stdout", [f"{number:090}" for number in range(1000)]))
    files.save(job)
    ((_, rest),) = said(tail)
    assert isinstance(rest, Lines)
    assert rest.texts == [f"{number:090}" for number in range(1000 - len(rest.texts), 1000)]
    assert tail.has_left_out


def test_a_rank_has_the_lines_of_its_attempt_alone(job: Job, files: Files) -> None:
    followed = follower(job)
    tail = files.follow(followed)
    job.apply(None, AttemptStarted(0))
    job.apply(0, Lines("stdout", ["first"]))
    files.save(job)
    followed.restore(list(job.events()))
    said(tail)
    job.apply(0, Lines("stdout", ["second"]))
    job.apply(None, AttemptStarted(1))
    job.apply(0, Lines("stdout", ["again"]))
    files.save(job)
    assert [line.text for line in followed.ranks[0].lines] == ["first"]
    followed.restore(list(job.events()))
    assert said(tail) == [(4, Lines("stdout", ["second"])), (4, Lines("stdout", ["again"]))]
    late = follower(job)
    assert len(said(files.follow(late))) == 2
    for each in (followed, late):
        assert [line.text for line in each.ranks[0].lines] == ["again"]


@pytest.mark.parametrize(
    "entry",
    [b"4 d 0 {}", b"4 d 0 [", b'4 d 0 {"at":"x"}', b"0 a 0 x", b"0 n 0 {", b"4 z 0 later", b"9 o 0 no such rank"],
)
def test_an_entry_that_is_damaged_or_of_another_version_is_passed_over(
    job: Job, files: Files, tmp_path: Path, entry: bytes
) -> None:
    job.apply(0, Lines("stdout", ["whole"]))
    files.save(job)
    (file,) = tmp_path.glob("log-*")
    with open(file, "ab") as opened:
        opened.write(entry + b"\n4 o 0 after\n4 o 0 to")
    texts = [text for _, event in said(files.follow(follower(job))) for text in getattr(event, "texts", ())]
    assert texts == ["whole", "after"]
