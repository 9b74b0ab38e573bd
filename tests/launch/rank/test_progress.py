"""From what a rank says of its progress to what a job knows of it."""

from __future__ import annotations

import io
import itertools
import json
import math
import signal
import sys
from collections.abc import Iterator
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console

import notebook_accel
from notebook_accel import events
from notebook_accel.events import (
    Bar,
    Event,
    Failed,
    Heartbeat,
    MemoryPeaks,
    Metrics,
    Phase,
    Raised,
    Signalled,
    from_wire,
    to_wire,
)
from notebook_accel.launch.job import describe, progress, text
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.job.rank_state import MAX_CLOSED_BARS, RankState
from notebook_accel.launch.rank.bar_nesting import BarNesting
from notebook_accel.launch.rank.coalescer import Coalescer
from notebook_accel.launch.rank.memory import Memory, has_changed
from notebook_accel.launch.rank.patches import tqdm
from notebook_accel.launch.show import terminal
from notebook_accel.launch.wire import constants
from notebook_accel.launch.wire.constants import REPORT_INTERVAL
from notebook_accel.panel import html_page
from notebook_accel.panel.panel_state import StateMaker


@pytest.fixture
def heard() -> Iterator[list[Event]]:
    found: list[Event] = []
    events.set_sink(found.append)
    yield found
    events.set_sink(None)


def test_a_report_is_heard(heard: list[Event]) -> None:
    notebook_accel.report({"val/loss": 1}, loss=0.5, step=3)
    (event,) = heard
    assert isinstance(event, Metrics)
    assert (event.values, event.step) == ({"val/loss": 1.0, "loss": 0.5}, 3)


def test_a_report_that_nobody_hears_is_remembered() -> None:
    assert notebook_accel.report(here=1)["here"] == 1.0
    assert notebook_accel.report()["here"] == 1.0
    latest = notebook_accel.report(best=10**400, worst=Fraction(-(10**400), 3))
    assert (latest["best"], latest["worst"]) == (math.inf, -math.inf)


def test_a_loss_is_reported_with_its_graph(heard: list[Event]) -> None:
    notebook_accel.report(loss=2 * torch.ones((), requires_grad=True))
    (event,) = heard
    assert isinstance(event, Metrics)
    assert event.values == {"loss": 2.0}


@pytest.mark.parametrize("value", [None, [1, 2], "high", object()])
def test_a_report_takes_numbers(heard: list[Event], value: object) -> None:
    with pytest.raises(TypeError, match=r"report\(\) takes numbers, and 'loss' is a "):
        notebook_accel.report(loss=value)
    assert heard == []


@pytest.mark.parametrize("unnamed", [0, 5, [("loss", 1.0)]])
def test_a_report_names_its_numbers(heard: list[Event], unnamed: Any) -> None:
    with pytest.raises(TypeError, match=r"report\(\) takes numbers by name, not \w+: write report\(loss=0\.3\)"):
        notebook_accel.report(unnamed)
    assert heard == []


def test_metrics_remember_their_time_on_the_wire() -> None:
    event = Metrics({"loss": 1.0}, 2)
    assert event.at > 0
    assert from_wire(to_wire(event)[0]) == event


def test_metrics_are_told_at_a_pace() -> None:
    latest = Coalescer()
    latest.add(Metrics({"loss": 1.0}))
    assert list(latest.take(now=1.0))
    latest.add(Metrics({"loss": 2.0}))
    assert not list(latest.take(now=1.0 + REPORT_INTERVAL / 2))
    assert list(latest.take(now=1.0 + REPORT_INTERVAL))


@pytest.mark.parametrize(
    ("ranks", "seconds"), [(1, REPORT_INTERVAL), (10, REPORT_INTERVAL), (64, 6.4 * REPORT_INTERVAL)]
)
def test_many_ranks_tell_no_more_than_a_few(ranks: int, seconds: float) -> None:
    latest = Coalescer(constants.report_interval(ranks))
    list(latest.take(now=1.0))
    latest.add(Metrics({"loss": 1.0}))
    assert not list(latest.take(now=1.0 + 0.9 * seconds))
    assert list(latest.take(now=1.0 + seconds))


def test_bars_are_left_alone_where_nobody_listens() -> None:
    assert tqdm.take() == []


def told(loaders: BarNesting, *drawn: Bar) -> list[tuple[int, int, bool, bool]]:
    return [(bar.bar, bar.depth, bar.closed, bar.leave) for bar in loaders.take(list(drawn), 1.0) if bar.bar < 0]


def test_the_bar_of_a_loader_stands_below_those_of_the_user() -> None:
    loaders = BarNesting()
    loaders.add(Bar(-1, n=1, total=20, counts="batches"))
    assert told(loaders, Bar(0, n=1, total=3)) == [(-1, 1, False, True)]
    loaders.add(Bar(-2, n=1, total=5, counts="batches"))
    assert told(loaders) == [(-2, 2, False, True)]
    for number in (-2, -1):
        loaders.add(Bar(number, n=5, total=5, closed=True, counts="batches"))
    assert told(loaders, Bar(0, n=3, total=3, closed=True)) == [(-2, 2, True, True), (-1, 1, True, True)]
    loaders.add(Bar(-1, n=1, total=20, counts="batches"))
    assert told(loaders) == [(-1, 0, False, True)]


def test_a_loader_that_a_bar_of_the_user_counts_is_not_told() -> None:
    loaders = BarNesting()
    loaders.add(Bar(-1, n=1, total=20, counts="batches"))
    assert told(loaders, Bar(0, n=0, total=20)) == []
    assert told(loaders, Bar(0, n=9, total=20, closed=True)) == []
    loaders.add(Bar(-1, n=9, total=20, closed=True, counts="batches"))
    assert told(loaders) == []
    loaders.add(Bar(-1, n=1, total=20, counts="batches"))
    assert told(loaders) == [(-1, 0, False, True)]


def test_the_bar_of_a_loader_gives_way_to_one_that_comes_later() -> None:
    loaders = BarNesting()
    loaders.add(Bar(-1, n=1, total=20, counts="batches"))
    assert told(loaders) == [(-1, 0, False, True)]
    loaders.add(Bar(-1, n=2, total=20, counts="batches"))
    assert told(loaders, Bar(0, n=0, total=20)) == [(-1, 0, True, False)]


def test_passes_over_a_loader_are_counted_also_if_several_end_before_they_are_told() -> None:
    loaders = BarNesting()
    for _ in range(3):
        loaders.add(Bar(-1, n=1, total=4, counts="batches"))
        loaders.add(Bar(-1, n=4, total=4, closed=True, counts="batches"))
    assert [bar.passes for bar in loaders.take([], 1.0)] == [2]
    loaders.add(Bar(-1, n=1, total=4, counts="batches"))
    assert [bar.passes for bar in loaders.take([], 2.0)] == [3]


def test_loaders_without_a_length_are_told_beside_bars_without_one() -> None:
    loaders = BarNesting()
    loaders.add(Bar(-1, n=1, counts="batches"))
    assert told(loaders, Bar(0, n=0)) == [(-1, 1, False, True)]


def test_metrics_are_a_table_where_pandas_is_installed() -> None:
    import pandas  # not by whoever only collects tests: it takes a second

    job = Job("f", 0, 1)
    assert list(job.metrics) == ["rank", "step", "seconds"]
    job.apply(0, Metrics({"loss": 0.5}, 3))
    table = job.metrics
    assert isinstance(table, pandas.DataFrame)
    assert table[["rank", "step", "loss"]].to_numpy().tolist() == [[0, 3, 0.5]]


def test_metrics_are_rows_where_pandas_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert Job("f", 0, 1).metrics == []


def test_a_rank_keeps_its_open_bars_and_the_last_closed_ones() -> None:
    state = RankState(0)
    state.apply(Bar(0, n=1, total=9))
    for number in range(1, 2 * MAX_CLOSED_BARS):
        state.apply(Bar(number, n=1, total=1, closed=True))
    assert len(state.bars) == MAX_CLOSED_BARS + 1
    assert 0 in state.bars


def test_a_rank_forgets_a_bar_that_is_not_to_be_left() -> None:
    state = RankState(0)
    state.apply(Bar(0, n=1, leave=False))
    state.apply(Bar(0, n=2, leave=False, closed=True))
    assert state.bars == {}


INTERRUPTED = Failed([Raised("KeyboardInterrupt", "KeyboardInterrupt", [])], at=1.0)
LOST_ITS_PEERS = Failed([Raised("RuntimeError", "RuntimeError: closed by peer", [])], at=1.0, from_peer=True)
BROKEN = Failed([Raised("ValueError", "ValueError", [])], at=1.0)


@pytest.mark.parametrize(
    ("said", "phase"),
    [
        ([Signalled(signal.SIGINT), INTERRUPTED], Phase.STOPPED),
        ([Signalled(signal.SIGINT), LOST_ITS_PEERS], Phase.STOPPED),
        ([Signalled(signal.SIGINT), BROKEN], Phase.FAILED),
        ([INTERRUPTED], Phase.FAILED),
        ([LOST_ITS_PEERS, Signalled(signal.SIGINT)], Phase.FAILED),
    ],
)
def test_a_rank_that_was_interrupted_has_not_failed(said: list[Event], phase: Phase) -> None:
    state = RankState(0)
    for event in said:
        state.apply(event)
    assert state.phase is phase


def test_a_rank_knows_its_memory() -> None:
    state = RankState(0)
    state.apply(Heartbeat(5, 3, 9))
    assert (state.resident, state.device_used, state.device_total) == (5, 3, 9)


class Cuda:
    """As much of `torch.cuda` as is asked."""

    def __init__(self, *, initialized: bool) -> None:
        self.is_initialized = lambda: initialized
        self.device_count = lambda: 2
        self.memory_allocated = lambda device: 70 + device
        self.memory_reserved = lambda device: 100 + device
        self.get_device_properties = lambda device: SimpleNamespace(total_memory=1000 + device)


@pytest.mark.parametrize(("initialized", "held"), [(False, (None, None)), (True, (101, 1001))])
def test_the_memory_of_the_ranks_own_device_is_told_once_it_is_used(
    monkeypatch: pytest.MonkeyPatch, initialized: bool, held: tuple[int | None, int | None]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=Cuda(initialized=initialized)))
    monkeypatch.setenv("LOCAL_RANK", "3")
    found, peaks = Memory(0.1).sample(now=5.0)
    assert isinstance(found, Heartbeat)
    assert isinstance(peaks, MemoryPeaks)
    assert peaks.device == ({"starting": 71} if initialized else {})
    assert found.resident > 2**20
    assert (found.device_used, found.device_total) == held


def test_each_phase_and_each_part_of_a_step_has_its_own_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, found = Memory(0), []
    sizes = iter([(Phase.LOADING, "", 50), (Phase.RUNNING, "forward", 70), (Phase.RUNNING, "backward", 90)] * 2)
    for at, (phase, part, size) in enumerate(sizes):
        memory.phase = phase
        monkeypatch.setattr("notebook_accel.launch.rank.memory.step_part", lambda part=part: part)
        monkeypatch.setattr("notebook_accel.launch.rank.memory.resident", lambda size=size: size * 2**20)
        found += [event for event in memory.sample(at) if isinstance(event, MemoryPeaks)]
    assert len(found) == 3  # the same again is no news
    assert found[-1].resident == {"loading": 50 * 2**20, "forward": 70 * 2**20, "backward": 90 * 2**20}


def test_memory_is_worth_telling_when_it_has_changed_by_a_mebibyte() -> None:
    assert not has_changed(Heartbeat(0, 0), Heartbeat(2**20 - 1, 5))
    assert has_changed(Heartbeat(0, 0), Heartbeat(2**20, 0))
    assert has_changed(Heartbeat(0), Heartbeat(0, 2**20, 2**30))


NUMBERS = [math.nan, math.inf, -math.inf, 10**400, -(10**5000), 1e308, -1e308, 5e-324, 0.0, 3]


@pytest.mark.parametrize("index", range(len(NUMBERS)))
def test_bars_and_metrics_of_any_numbers_and_words_are_drawn(index: int) -> None:
    n = NUMBERS[index]
    sent = Coalescer(0.0)
    words = "\ud83d\udcc8 \x1b[31m 📈"
    for depth, (total, rate) in enumerate(itertools.product([*NUMBERS, None], NUMBERS)):
        tqdm.publish(Bar(tqdm.new_number(), n, total, words, words, rate, elapsed=rate, postfix=words, depth=depth % 3))
    for step in (0, 10**400, None):
        sent.add(Metrics({"loss": n, words: n, "best": 10**400, "worst": -(10**400)}, step))
    job = Job("train", 0, 1)
    job.started -= 10
    for event in sent.take_all(1.0):
        header, blobs = to_wire(event)
        job.apply(0, from_wire(json.loads(json.dumps(header)), blobs))
    latest = job.ranks[0].metrics
    assert (latest["best"], latest["worst"]) == (math.inf, -math.inf)
    seen: Any = StateMaker(job).whole()
    drawn = json.dumps(seen, ensure_ascii=False, allow_nan=False), describe.describe(job), html_page.draw(job)
    for each in drawn:
        each.encode()
    assert "📈" in drawn[0]
    assert len(seen["ranks"]["0"]["bars"]) > 1
    Console(file=io.StringIO()).print(terminal.draw(job))


@pytest.mark.parametrize(
    "bar",
    [Bar(0, n=0, total=1e308, rate=5e-324), Bar(0, n=5e-324, total=1e308, elapsed=1e9), Bar(0, n=-1, total=1e-308)],
)
def test_no_time_is_left_that_nobody_could_wait(bar: Bar) -> None:
    state = RankState(0)
    state.apply(bar)
    found = progress.progress(state)
    assert found.remaining is None
    assert found.fraction == 0


@pytest.mark.parametrize("bar", [Bar(0, n=4, total=4, rate=2.0), Bar(0, n=5, total=4, elapsed=10.0)])
def test_a_full_bar_does_not_say_when_the_function_ends(bar: Bar) -> None:
    state = RankState(0)
    state.apply(bar)
    found = progress.progress(state)
    assert (found.fraction, found.remaining) == (1.0, None)


def test_progress_counts_what_inner_bars_have_done_of_a_step() -> None:
    state = RankState(0)
    state.apply(Bar(0, n=1, total=4, description="epoch", elapsed=10.0))
    state.apply(Bar(1, n=50, total=100, description="batch", depth=1, rate=12.0))
    found = progress.progress(state)
    assert found.fraction == 0.375
    assert found.remaining == pytest.approx(10 / 0.375 - 10)
    assert found.text == "epoch 1/4 › batch 50/100 12.0 it/s"


class Training:
    """A rank that reports the bars of loops, and what a job makes of them."""

    def __init__(self) -> None:
        self._nesting, self.job, self._now = BarNesting(), Job("train", 0, 1), 0.0
        self.job.started -= 10
        self.job.status = Status.RUNNING

    def tell(self, *own: Bar, drawn: tuple[Bar, ...] = ()) -> progress.Progress:
        self._now += 1
        for bar in own:
            self._nesting.add(bar)
        for bar in self._nesting.take([*drawn], self._now):
            self.job.apply(0, bar)
        return progress.progress(self.job.ranks[0])

    def epoch(self, n: int, *, initial: int = 0, closed: bool = False) -> Bar:
        return Bar(-1, n, 4, "epoch", elapsed=self._now, counts="epochs", initial=initial, closed=closed)


def batches(number: int, n: int, total: int, elapsed: float = 0.0, **more: Any) -> Bar:
    return Bar(number, n, total, "batch", elapsed=elapsed, closed=n == total, counts="batches", **more)


def test_epochs_with_a_validation_count_the_whole_training() -> None:
    rank = Training()
    found = rank.tell(rank.epoch(0), batches(-2, 5, 10, 3.0))
    assert (found.fraction, found.text) == (0.125, "epoch 1/4 › batch 5/10")
    assert rank.tell(batches(-2, 10, 10, 6.0)).fraction == 0.25
    assert rank.tell(batches(-3, 1, 2, 1.0)).fraction == 0.25  # nothing is known yet of how long this takes
    assert rank.tell(batches(-3, 2, 2, 2.0)).fraction == 0.25
    found = rank.tell(rank.epoch(1), batches(-2, 5, 10, 3.0))
    assert (found.fraction, found.text) == (0.25 + 0.25 * 0.75 / 2, "epoch 2/4 › batch 5/10")
    assert rank.tell(batches(-2, 10, 10, 6.0)).fraction == 0.25 + 0.25 * 0.75
    assert rank.tell(batches(-3, 1, 2, 1.0)).fraction == 0.25 + 0.25 * 0.875
    assert rank.tell(batches(-3, 2, 2, 2.0), rank.epoch(2)).fraction == 0.5
    assert found.remaining == pytest.approx(5 / 0.34375 - 5, rel=0.3)
    found = rank.tell(rank.epoch(4, closed=True))
    assert (found.fraction, found.text) == (1.0, "epoch 4/4")
    assert progress.overview(rank.job).done == 1.0


def test_bars_of_the_user_are_inside_the_epochs_that_they_began_in() -> None:
    rank = Training()
    rank.tell(rank.epoch(1))
    inner = Bar(tqdm.new_number(), 5, 10, "batch", elapsed=1.0)
    found = rank.tell(batches(-2, 5, 10), drawn=(inner,))
    assert ([bar.depth for bar in found.bars], found.fraction) == ([0, 1], 0.375)


@pytest.mark.parametrize("total", [4, None])
def test_a_bar_around_the_epochs_counts_them_once(total: int | None) -> None:
    rank = Training()
    outer = Bar(tqdm.new_number(), 1, total, "mine", elapsed=3.0)
    found = rank.tell(rank.epoch(1), batches(-2, 5, 10), drawn=(outer,))
    assert ([bar.depth for bar in found.bars], found.fraction) == ([0, 1, 2], 0.375)


def test_the_time_left_of_a_training_that_resumed_is_that_of_what_it_does_now() -> None:
    rank = Training()
    rank.tell(rank.epoch(2, initial=2), batches(-2, 5, 10, initial=5))
    for _ in range(9):
        rank.tell()
    found = rank.tell(
        batches(-2, 10, 10, 9.0), rank.epoch(3, initial=2)
    )  # half an epoch in 10 seconds, and a whole one is left
    assert (found.fraction, found.remaining) == (0.75, pytest.approx(20.0))


def test_a_loop_that_says_of_no_epochs_has_no_end_that_is_known() -> None:
    rank = Training()
    found = rank.tell(batches(-2, 9, 10, 3.0))
    head = StateMaker(rank.job).whole()["head"]
    assert (found.fraction, head["done"], head["time_left"]) == (0.9, -1, "")
    rank.tell(batches(-2, 10, 10, 4.0))
    assert rank.tell(batches(-2, 1, 10, 1.0)).text == "pass 2 › batch 1/10"


def test_a_bar_that_is_drawn_again_and_again_does_not_count_the_whole() -> None:
    rank = Training()
    rank.tell(drawn=(Bar(tqdm.new_number(), 3, 3, "tokenize", elapsed=1.0, closed=True),))
    rank.tell(drawn=(Bar(tqdm.new_number(), 9, 10, "epoch 1", elapsed=1.0),))
    assert progress.overview(rank.job).done == 0.9
    rank.tell(drawn=(Bar(tqdm.new_number(), 10, 10, "epoch 1", elapsed=1.0, closed=True, leave=False),))
    rank.tell(drawn=(Bar(tqdm.new_number(), 1, 10, "epoch 2", elapsed=1.0),))
    assert progress.overview(rank.job).done is None


def test_the_time_left_counts_what_has_passed_since_the_outer_bar_moved_last() -> None:
    latest, state = Coalescer(), RankState(0)
    for now, number, n in ((100.0, 0, 0.0), (130.0, 1, 50.0)):
        latest.add(Bar(number, n=n, total=(4.0, 100.0)[number], elapsed=0.1, depth=number))
        for event in latest.take_all(now):
            state.apply(event)
    assert progress.progress(state).remaining == pytest.approx(30.1 / 0.125 - 30.1)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (text.value(0.488123), "0.4881"),
        (text.value(0.00003), "3e-5"),
        (text.value(-1.2e-12), "-1.2e-12"),
        (text.value(6.02e23), "6.02e23"),
        (text.value(12345.6), "12346"),
        (text.value(math.nan), "nan"),
        (text.rate(123_456_789, "B"), "123.46 MB/s"),
        (text.rate(512, "B"), "512.0 B/s"),
        (text.rate(1_000_000, "it"), "1.00M it/s"),
        (text.rate(0.4, "it"), "2.50 s/it"),
        (text.count(1e21), "1e+21"),
    ],
)
def test_numbers_are_written_as_people_read_them(words: str, expected: str) -> None:
    assert words == expected


def test_an_overview_names_the_slowest_rank() -> None:
    job = Job("f", 0, 3)
    for rank, n in enumerate((80, 20, 90)):
        job.apply(rank, Bar(0, n=n, total=100, rate=10.0))
    found = progress.overview(job)
    assert (found.done, found.slowest, found.remaining) == (0.8, 1, 8.0)
    assert [found.is_behind(rank) for rank in range(3)] == [False, True, False]


def test_the_same_events_give_the_same_job() -> None:
    told = [Bar(0, n=3, total=5), Metrics({"loss": 1.0}, 1), Heartbeat(2**30), Bar(0, n=5, total=5, closed=True)]
    first, again = Job("f", 0, 1), Job("f", 0, 1)
    again.started = first.started
    for event in told:
        first.apply(0, event)
        again.apply(0, from_wire(to_wire(event)[0]))
    for job in (first, again):
        job.finish(Status.DONE)
    assert again.charts.drawn("loss", (), 9) == first.charts.drawn("loss", (), 9)
    assert again.ranks[0].metrics == first.ranks[0].metrics == {"loss": 1.0}
    assert again.ranks[0].bars == first.ranks[0].bars
