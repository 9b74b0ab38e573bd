"""When a job has stalled, and what is said of it."""

from __future__ import annotations

import itertools
import linecache
import sys
import sysconfig
import threading
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch

from notebook_accel.events import (
    Bar,
    Collective,
    CollectivesRecorded,
    CollectivesRequested,
    Event,
    Frame,
    Hello,
    Lines,
    Location,
    Phase,
    PhaseChanged,
    Report,
    Reports,
    Returned,
    Stacks,
    StacksRequested,
    Stalled,
    ThreadStack,
    from_wire,
    to_wire,
)
from notebook_accel.insight.explanation import explain
from notebook_accel.launch.driver.stall_watch import StallWatch
from notebook_accel.launch.job import describe, location
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.requests import RankRequest, Replies
from notebook_accel.launch.rank import flight_recorder
from notebook_accel.launch.rank.stacks import stack_sampler
from notebook_accel.launch.rank.stacks.collective_wait import WAIT_THRESHOLD, WaitDetector
from notebook_accel.launch.show.console import Terminal
from notebook_accel.launch.wire import stack_frames

(REPORTED,) = Reports.pack([Report({"loss": 1.0}, None, 1.0)])
INSTALLED = sysconfig.get_paths()["purelib"]
C10D = f"{INSTALLED}/torch/distributed/distributed_c10d.py"
LOGGER = "/lib/torch/distributed/c10d_logger.py"


# What is a collective


@pytest.mark.parametrize(
    ("stack", "found"),
    [
        ([(C10D, "all_reduce"), (LOGGER, "wrapper"), ("/me.py", "train")], ("all_reduce", 0)),
        ([(C10D, "all_gather"), (LOGGER, "wrapper"), (C10D, "all_gather_object"), (LOGGER, "wrapper")],
         ("all_gather_object", 2)),
        ([("/lib/torch/distributed/utils.py", "_verify"), ("/lib/torch/nn/parallel/distributed.py", "__init__")],
         ("DistributedDataParallel", 1)),
        ([("/lib/torch/_ops.py", "__call__"), ("/lib/torch/distributed/_functional_collectives.py", "wait_tensor")],
         ("functional collective", 1)),
        ([("/lib/torch/nn/functional.py", "linear"), (C10D, "all_reduce")], ("", -1)),
        ([("/me/distributed_c10d.py", "all_reduce")], ("", -1)),
        ([], ("", -1)),
    ],
)  # fmt: skip
def test_a_collective_is_told_from_the_innermost_frames(stack: list[tuple[str, str]], found: tuple[str, int]) -> None:
    assert stack_frames.outermost_collective(stack) == found


class Sitting:
    """A thread that sits in functions of a file with the given name, until it is let go on."""

    def __init__(self, filename: str = C10D, function: str = "all_reduce") -> None:
        self._filename = filename
        source = f"def {function}(entered, left):\n    entered()\n    left()\n"
        found: dict[str, Callable[..., None]] = {}
        exec(compile(source, filename, "exec"), found)
        self._call = found[function]
        self._lock = threading.Lock()
        self.entered = threading.Semaphore(0)
        self._ended = False
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._ended:
            self._call(self.entered.release, self._lock.acquire)

    def __enter__(self) -> Sitting:
        self._lock.acquire()
        self.thread.start()
        self.sits()
        return self

    def sits(self) -> None:
        assert self.entered.acquire(timeout=10)
        assert self.thread.ident is not None
        for _ in range(10**6):  # it has said so just before
            frame = _frame(self.thread.ident)
            if frame.f_code.co_filename == self._filename and frame.f_lineno == 3:
                return
        raise AssertionError("it does not sit")

    def goes_on(self) -> None:
        """To the next call of the same function."""
        self._lock.release()
        self.sits()

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self._lock.release()
        self.thread.join(10)


def _frame(ident: int) -> types.FrameType:
    return sys._current_frames()[ident]


def test_a_call_that_lasts_is_a_wait_and_its_end_is_told() -> None:
    with Sitting() as sitting:
        found = WaitDetector(sitting.thread.ident or 0)
        assert found.sample(1.0) == []
        assert found.sample(1.2) == []
        (event,) = found.sample(1.0 + WAIT_THRESHOLD)
        assert isinstance(event, PhaseChanged)
        assert (event.phase, event.detail) == (Phase.WAITING, "all_reduce")
        assert event.frame is not None
        assert event.frame.filename == __file__
        assert found.sample(9.0) == []
        sitting.goes_on()
        assert found.sample(9.2) == [PhaseChanged(Phase.RUNNING)]


def test_calls_that_follow_each_other_are_no_wait() -> None:
    with Sitting() as sitting:
        found = WaitDetector(sitting.thread.ident or 0)
        for now in range(1, 9):
            assert found.sample(float(now)) == []
            sitting.goes_on()


def test_what_ends_with_its_call_is_not_told_to_go_on() -> None:
    with Sitting() as sitting:
        found = WaitDetector(sitting.thread.ident or 0)
        assert [len(found.sample(now)) for now in (1.0, 2.0)] == [0, 1]
        found.reset()
        sitting.goes_on()
        assert found.sample(3.0) == []


def test_a_rank_that_imports_torch_distributed_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch, "distributed")
    monkeypatch.setitem(sys.modules, "torch.distributed", types.ModuleType("torch.distributed"))
    with Sitting(__file__) as sitting:
        assert spin(WaitDetector(sitting.thread.ident or 0)) == []


def spin(thread: WaitDetector, looks: int = 8) -> list[Event]:
    """What a thread tells that computes all the time."""
    return [event for look in range(1, looks + 1) for event in thread.sample(0.2 * look)]


@pytest.fixture
def elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[Sitting, WaitDetector, list[flight_recorder.Outstanding]]]:
    """A thread that spins in a call of no collective, while collectives are under way, as often as it is asked."""
    counts: list[flight_recorder.Outstanding] = []
    monkeypatch.setattr(flight_recorder, "outstanding", lambda: counts.pop(0) if len(counts) > 1 else counts[0])
    monkeypatch.setattr(flight_recorder, "name_of", lambda counts: f"number {counts[0][1]}")
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    with Sitting(__file__) as sitting:
        yield sitting, WaitDetector(sitting.thread.ident or 0, itertools.count().__next__), counts


def test_who_spins_while_a_collective_is_queued_waits_for_that(
    elsewhere: tuple[Sitting, WaitDetector, list[flight_recorder.Outstanding]],
) -> None:
    _, found, counts = elsewhere
    counts += [(("0", "5", "4"),), (("0", "6", "5"),)]
    (event,) = spin(found)
    assert isinstance(event, PhaseChanged)
    assert (event.phase, event.detail) == (Phase.WAITING, "number 6")
    counts[:] = [()]
    assert found.sample(9.0) == [PhaseChanged(Phase.RUNNING)]


@pytest.mark.parametrize(
    "given", [[()], [(("0", str(number), "0"),) for number in range(20)]], ids=["none", "ever new"]
)
def test_who_spins_while_no_collective_stands_still_computes(
    elsewhere: tuple[Sitting, WaitDetector, list[flight_recorder.Outstanding]], given: list[flight_recorder.Outstanding]
) -> None:
    _, found, counts = elsewhere
    counts += given
    assert spin(found) == []


def test_a_thread_that_has_ended_does_not_wait() -> None:
    assert WaitDetector(1).sample(1.0) == []


# What a frame calls


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("look()", "look"),
        ("box.look()", "box.look"),
        ("[box][0].look()", "look"),
        ("value = 1 + box.look(\n    1,\n    2,\n)", "box.look"),
        ("print('è', box.look())", "box.look"),
        ("for _ in box: pass", ""),
    ],
)
def test_the_call_that_a_frame_is_in_is_named_as_it_is_written(line: str, name: str) -> None:
    seen: list[str] = []

    def look(*_: object) -> int:
        seen.append(stack_sampler.called(sys._getframe().f_back.f_back))  # type: ignore[arg-type, union-attr]
        return 1

    class Box:
        def look(self, *_: object) -> int:
            return look()

        def __iter__(self) -> Box:
            return self

        def __next__(self) -> int:
            if seen:
                raise StopIteration
            return look()

    linecache.cache["<cell>"] = (len(line), None, line.splitlines(keepends=True), "<cell>")
    try:
        exec(compile(line, "<cell>", "exec"), {"look": lambda: look(), "box": Box()})
    finally:
        del linecache.cache["<cell>"]
    assert seen == [name]


def test_installed_files_and_pythons_own_are_not_the_users() -> None:
    assert stack_frames.is_user_file(__file__)
    assert not any(
        map(stack_frames.is_user_file, (threading.__file__, pytest.__file__, stack_frames.__file__, "<frozen runpy>"))
    )


# When a job has stalled


class Watched:
    """A job with its watch, on a clock of its own."""

    def __init__(self, size: int = 3, after: float | None = 10.0, elsewhere: int = 0) -> None:
        self.job = Job("train", 0, size)
        self.now = 100.0
        self.asked = 0
        self.collectives: dict[int, Event] = {}
        """What ranks reply when they are asked for their collectives."""
        self._watch = StallWatch(self.job, after, elsewhere, self._reply, self.now)
        for rank in range(size):
            self.say(rank, Hello(1, "host"), PhaseChanged(Phase.RUNNING))

    def _reply(self, request: RankRequest, then: Callable[[Replies], object]) -> None:
        if isinstance(request.event, CollectivesRequested):
            then(self.collectives)
            return
        assert isinstance(request.event, StacksRequested)
        self.asked += 1
        stack = ThreadStack("main thread", [Frame("/me/train.py", 12, "train", "go()")], "time.sleep", True)
        then({rank: Stacks(1, [stack]) for rank in range(len(self.job.ranks))})

    def say(self, rank: int, *events: Event) -> None:
        for event in events:
            self._watch.on_event(rank, event, self.now)
            self.job.apply(rank, event)

    def wait(self, *ranks: int, name: str = "all_reduce", line: int = 20) -> None:
        for rank in ranks:
            self.say(rank, PhaseChanged(Phase.WAITING, f"{name} at In[5] line {line}"))

    def pass_time(self, seconds: float = 11.0) -> bool:
        """Whether the job has stalled then."""
        self.now += seconds
        self._watch.check(self.now)
        return self.job.stalled is not None


def test_one_that_stands_still_while_others_wait_stalls_the_job() -> None:
    watched = Watched()
    watched.wait(0, 2)
    assert not watched.pass_time(9)
    assert watched.pass_time(2)
    assert watched.job.stalled is not None
    assert [place.phase for place in watched.job.stalled.places] == [Phase.WAITING, Phase.RUNNING, Phase.WAITING]


def test_ranks_that_compute_without_a_word_have_not_stalled() -> None:
    assert not Watched().pass_time(10**6)


@pytest.mark.parametrize("event", [Bar(0, n=1), REPORTED, Lines("stdout", ["here"]), PhaseChanged(Phase.RUNNING)])
def test_who_moves_may_be_waited_for(event: Event) -> None:
    watched = Watched()
    watched.wait(0, 2)
    watched.now += 9
    watched.say(1, event)
    assert not watched.pass_time(9)
    assert watched.pass_time(2)


def test_a_bar_that_is_drawn_again_where_it_was_is_no_progress() -> None:
    watched = Watched()
    watched.say(1, Bar(0, n=1, elapsed=1.0))
    watched.wait(0, 2)
    watched.now += 9
    watched.say(1, Bar(0, n=1, elapsed=10.0))
    assert watched.pass_time(2)


def test_a_stall_ends_with_the_first_progress_and_is_told_anew() -> None:
    watched = Watched()
    watched.wait(0, 2)
    assert watched.pass_time()
    assert watched.pass_time()
    assert watched.asked == 1
    watched.say(1, REPORTED)
    assert not watched.pass_time(1)
    assert watched.pass_time()
    watched.wait(1)
    assert watched.pass_time()
    assert watched.asked == 3


def test_a_rank_that_imports_has_not_stalled_for_a_minute() -> None:
    watched = Watched()
    watched.wait(0, 2)
    watched.say(1, PhaseChanged(Phase.RUNNING, "import transformers", since=time.time() - 12))
    assert not watched.pass_time(59)
    assert "running   import transformers, " in describe.summary(watched.job)
    [finding] = explain(watched.job).findings
    assert finding.kind == "imports"
    assert finding.text.startswith("rank 1: import transformers, ")
    watched.say(1, PhaseChanged(Phase.RUNNING, "import transformers", since=time.time() - 71))  # further modules
    assert not watched.pass_time(59)
    assert watched.pass_time(2)
    assert "rank 1 is in import transformers at /me/train.py line 12" in location.explain(watched.job)


def test_a_rank_that_imports_before_its_function_begins_is_told_apart_from_one_that_hangs() -> None:
    watched = Watched(2)
    watched.wait(0)
    watched.say(1, PhaseChanged(Phase.LOADING, "import transformers", since=time.time()))
    assert not watched.pass_time(59)
    assert watched.pass_time(2)
    assert "rank 1 still loads the function: import transformers" in location.explain(watched.job)
    watched.say(1, PhaseChanged(Phase.RUNNING))
    assert not watched.pass_time(1)
    assert "import" not in describe.summary(watched.job)
    assert watched.pass_time(10)


def test_nothing_is_told_where_that_was_switched_off() -> None:
    watched = Watched(after=None)
    watched.wait(0, 1, 2)
    assert not watched.pass_time(10**6)


# What is said of it


def said(watched: Watched) -> str:
    assert watched.pass_time()
    return location.explain(watched.job).partition(": ")[2]


def test_ranks_in_the_same_place_are_told_together() -> None:
    watched = Watched(4)
    watched.wait(0, 2, 3)
    assert said(watched) == (
        "ranks 0,2-3 wait in time.sleep at /me/train.py line 12; rank 1 is in time.sleep at /me/train.py line 12"
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            [("all_reduce", 20), ("all_reduce", 20)],
            "wait in all_reduce at In[5] line 20: perhaps one of them has called",
        ),
        ([("all_reduce", 20), ("barrier", 31)], "In[5] line 31: they wait for each other forever"),
        ([("barrier", 20), ("barrier", 31)], "they wait for each other forever"),
    ],
)
def test_why_all_wait_is_told_as_far_as_it_is_known(given: list[tuple[str, int]], expected: str) -> None:
    job = Job("train", 0, 2)
    where = [Location(rank, Phase.WAITING, name, f"In[5] line {line}") for rank, (name, line) in enumerate(given)]
    job.apply(None, Stalled(where, since=job.started))
    assert expected in location.explain(job)
    job.apply(None, Stalled(where, since=job.started, elsewhere=6))
    assert location.explain(job).endswith("; 6 ranks are on other machines")


def test_a_stall_names_a_mismatch_of_collectives_with_global_ranks() -> None:
    watched = Watched(2)
    entry = Collective("0", "default_pg", 5, "all_reduce", "float[2]", 8, 1.0, done=False)
    for rank, operation in enumerate(("all_reduce", "barrier")):
        watched.collectives[rank] = CollectivesRecorded(1, [replace(entry, operation=operation)])
    watched.wait(0)
    watched.wait(1)
    assert said(watched).endswith("; rank 0 is in all_reduce #5 of 8 B, rank 1 in barrier #5 of 8 B")
    assert watched.job.stalled is not None
    again = Job("train", 0, 2)
    again.apply(None, from_wire(to_wire(watched.job.stalled)[0]))
    assert again.stalled == watched.job.stalled


def test_who_has_returned_will_not_come() -> None:
    watched = Watched(2)
    watched.wait(0)
    watched.say(1, Returned())
    assert said(watched).endswith("rank 1 has returned: no other rank will join")


def test_a_job_that_is_paused_has_not_stalled() -> None:
    watched = Watched(2)
    watched.say(1, PhaseChanged(Phase.PAUSED))
    watched.wait(0)
    assert not watched.pass_time(1000)
    watched.say(1, PhaseChanged(Phase.RUNNING))
    assert watched.pass_time(1000)


def test_a_place_without_a_call_shows_its_line() -> None:
    place = Location(1, Phase.RUNNING, "", "In[5] line 12", [Frame(__file__, 12, "train", "for batch in loader:")])
    assert location.sentence([place]) == "rank 1 is at In[5] line 12 (`for batch in loader:`)"
    assert location.sentence([Location(1, Phase.RUNNING)]) == "rank 1 does not say where it is"
    assert location.sentence([Location(0, Phase.IDLE), Location(1, Phase.IDLE)]) == "ranks 0-1 have not begun"


def test_a_rank_that_does_not_answer_is_where_it_said_it_waits() -> None:
    job = Job("train", 0, 1)
    job.apply(0, PhaseChanged(Phase.WAITING, "barrier at In[5] line 3"))
    assert location.sentence([location.of(job.ranks[0], ())]) == "rank 0 waits in barrier at In[5] line 3"


def test_a_stall_survives_the_journal_and_is_part_of_the_text() -> None:
    watched = Watched(2)
    watched.wait(0)
    text = said(watched)
    again = Job("train", 0, 2)
    assert watched.job.stalled is not None
    again.apply(None, from_wire(to_wire(watched.job.stalled)[0]))
    assert text in describe.describe(again).splitlines()[1]
    again.apply(None, Stalled(()))
    assert again.stalled is None


def test_a_terminal_tells_a_stall_once(capsys: pytest.CaptureFixture[str]) -> None:
    watched = Watched(2)
    view = Terminal().choose_view()(watched.job)
    watched.wait(0)
    text = said(watched)
    for _ in range(3):
        view.refresh()
    assert capsys.readouterr().err.count(text) == 1
    watched.say(1, REPORTED)
    assert not watched.pass_time(1)
    view.refresh()
    assert capsys.readouterr().err == ""
