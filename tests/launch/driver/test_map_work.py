"""Every item of a map gets its value once, however often ranks die; and those that can't are named."""

from __future__ import annotations

import datetime
import json
import math
import random
import signal
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from notebook_accel.errors import CheckpointError, ConfigurationError
from notebook_accel.events import Bar, Event, Exited, ItemsDone, ItemsGiven, ItemsRequested
from notebook_accel.launch.driver import map_output, map_results, map_work
from notebook_accel.launch.driver.map_results import MapResults, digest_of
from notebook_accel.launch.driver.map_work import FailedItem, MapWork, enumerated
from notebook_accel.launch.engines.independent import Fate
from notebook_accel.launch.show import console
from notebook_accel.launch.wire import map_call
from notebook_accel.launch.wire.map_call import MapCall
from tests.launch.journal.cases import Notices


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found = Notices()
    monkeypatch.setattr(console, "current", found)
    return found.told


class Ranks:
    """Ranks that answer and die when the test says so."""

    def __init__(
        self,
        items: Iterable[Any],
        function: Callable[..., Any],
        *,
        size: int = 2,
        batch: int = 0,
        retries: int = 2,
        results: MapResults | None = None,
        check: Callable[[bytes], object] = lambda value: None,
    ) -> None:
        self.results = MapResults(None) if results is None else results
        self.bars: list[Bar] = []
        total = len(items) if isinstance(items, (list, range)) else None
        self.work = MapWork(
            enumerated(items, lambda error: self.work.fail(error)),
            total=total,
            batch=batch,
            retries=retries,
            results=self.results,
            check=check,
        )
        self._call = MapCall(function)
        self.queues: dict[int, deque[ItemsGiven]] = {}
        self.ended: set[int] = set()
        self.work.begin(self._send, self._report)
        for rank in range(size):
            self.start(rank)

    def _send(self, rank: int, event: Event) -> None:
        assert isinstance(event, ItemsGiven)
        if event.data:
            self.queues[rank].append(event)
        else:
            self.ended.add(rank)

    def _report(self, rank: int, event: Event) -> None:
        assert isinstance(event, Bar)
        self.bars.append(event)

    def start(self, rank: int) -> None:
        self.queues[rank] = deque()
        assert self.work.on_event(rank, ItemsRequested())

    def answer(self, rank: int) -> None:
        done = self._call.answer(self.queues[rank].popleft(), ())
        self.work.on_event(rank, ItemsDone(done.errors, 0.02, done.data))

    def die(self, rank: int, signum: int = signal.SIGKILL, *, oom_killed: bool = False) -> None:
        self.queues[rank].clear()
        if self.work.on_exit(rank, Exited(None, signum), oom_killed=oom_killed) is Fate.REPLACED:
            self.start(rank)

    def run(self) -> None:
        while busy := [rank for rank, queue in self.queues.items() if queue]:
            self.answer(busy[0])

    def values(self) -> list[Any]:
        found = (self.results.get(index) for index in range(self.work.seen))
        return [None if blob is None else map_call.load(blob) for blob in found]


def square(x: int) -> int:
    return x * x


def test_ten_thousand_kills_lose_and_repeat_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that are killed from outside at random moments, with what they were given unanswered."""
    chance, kills = random.Random(5), 0
    added: list[int] = []
    add = MapResults.add

    def note(results: MapResults, index: int, digest: int, value: bytes) -> None:
        added.append(index)
        add(results, index, digest, value)

    monkeypatch.setattr(MapResults, "add", note)
    while kills < 10_000:
        count = chance.randrange(40)
        ranks = Ranks(range(count), square, size=chance.randrange(1, 4), batch=0)
        added.clear()
        while busy := [rank for rank, queue in ranks.queues.items() if queue]:
            rank = chance.choice(busy)
            if chance.random() < 0.4:
                ranks.die(rank)
                kills += 1
            else:
                ranks.answer(rank)
        assert ranks.values() == [square(x) for x in range(count)]
        assert sorted(added) == list(range(count))
        assert ranks.work.is_complete
        assert ranks.ended == set(ranks.queues)


def test_an_item_that_fails_is_tried_again_and_then_named(told: list[str]) -> None:
    calls: list[int] = []

    def call(x: int) -> int:
        calls.append(x)
        return 10 // (x - 3)

    ranks = Ranks(range(6), call)
    ranks.run()
    assert ranks.values() == [-4, -5, -10, None, 10, 5]
    failed = ranks.work.failures[3]
    assert (failed.index, failed.attempts) == (3, 3)
    assert "ZeroDivisionError" in failed.error
    assert calls.count(3) == 3
    assert told == [f"item 3 has failed 3 times, and is left out: {failed.error}"]


def test_the_items_of_a_batch_that_fails_are_tried_by_themselves() -> None:
    calls: list[list[int]] = []

    def call(items: list[int]) -> list[int]:
        calls.append(items)
        if 5 in items:
            raise ValueError("five")
        return [square(x) for x in items]

    ranks = Ranks(range(8), call, batch=4, size=1)
    ranks.run()
    assert ranks.values() == [square(x) if x != 5 else None for x in range(8)]
    assert calls.count([5]) == 2
    assert [4, 5, 6, 7] in calls


@pytest.mark.parametrize("oom_killed", [False, True])
def test_an_item_that_kills_its_rank_is_left_out(oom_killed: bool) -> None:
    ranks = Ranks([0], square, size=1)
    for _ in range(3):
        ranks.die(0, signal.SIGKILL if oom_killed else signal.SIGSEGV, oom_killed=oom_killed)
    assert ranks.work.is_complete
    assert ranks.work.failures[0].error.startswith("its rank was killed by signal")


def test_an_item_whose_rank_is_always_killed_is_left_out_in_the_end() -> None:
    ranks = Ranks([0], square, size=1)
    for _ in range(map_work.MOST_KILLS + 3):
        ranks.die(0)
    assert list(ranks.work.failures) == [0]


def test_a_rank_that_dies_before_its_first_item_is_replaced_twice() -> None:
    ranks = Ranks(range(3), square, size=0)
    fates = [ranks.work.on_exit(0, Exited(1), oom_killed=False) for _ in range(3)]
    assert fates == [Fate.REPLACED, Fate.REPLACED, Fate.FAILED]


def test_a_rank_that_is_killed_before_its_first_item_is_replaced_more_often() -> None:
    ranks = Ranks(range(3), square, size=0)
    for _ in range(map_work.MOST_KILLS):
        assert ranks.work.on_exit(0, Exited(None, signal.SIGKILL), oom_killed=False) is Fate.REPLACED
    assert ranks.work.on_exit(0, Exited(None, signal.SIGKILL), oom_killed=False) is Fate.FAILED


def test_a_rank_that_dies_when_nothing_is_left_is_done() -> None:
    ranks = Ranks(range(3), square)
    ranks.run()
    assert ranks.work.on_exit(0, Exited(None, signal.SIGKILL), oom_killed=False) is Fate.DONE


def test_an_iterable_that_fails_ends_the_map() -> None:
    def items() -> Any:
        yield 1
        raise KeyError("source")

    ranks = Ranks(items(), square)
    ranks.run()
    assert isinstance(ranks.work.error, KeyError)
    assert ranks.ended == {0, 1}


def test_a_value_that_cannot_be_written_ends_the_map() -> None:
    def check(value: bytes) -> None:
        raise ConfigurationError("no")

    ranks = Ranks(range(5), square, check=check)
    ranks.run()
    assert isinstance(ranks.work.error, ConfigurationError)
    assert ranks.work.is_complete


def test_an_item_that_cannot_be_sent_is_named() -> None:
    ranks = Ranks([1, (x for x in "a"), 3], square)
    ranks.run()
    assert ranks.values() == [1, None, 9]
    assert ranks.work.failures[1].attempts == 0


def test_progress_counts_all_items_and_shows_a_value() -> None:
    ranks = Ranks(range(10), square)
    ranks.run()
    last = ranks.bars[-1]
    assert (last.n, last.total, last.closed) == (10, 10, True)
    assert last.postfix == "0: 0"


def test_what_is_saved_is_not_computed_again(tmp_path: Path) -> None:
    with_file = MapResults(tmp_path)
    ranks = Ranks(range(10), square, results=with_file)
    for _ in range(3):
        ranks.answer(0)
    with_file.close()  # the process has ended
    calls: list[int] = []

    def call(x: int) -> int:
        calls.append(x)
        return square(x)

    again = Ranks(range(10), call, results=MapResults(tmp_path))
    again.run()
    assert again.values() == [square(x) for x in range(10)]
    assert 0 < len(calls) < 10
    again.results.close()
    changed = Ranks([5, *range(1, 10)], square, results=MapResults(tmp_path))
    changed.run()
    assert changed.values()[0] == 25
    assert changed.results.stale == 1
    changed.results.close()


@pytest.mark.parametrize("cut", [1, 30, 40])
def test_a_torn_record_is_dropped(tmp_path: Path, cut: int) -> None:
    results = MapResults(tmp_path)
    for index in range(3):
        results.add(index, digest_of(b"%d" % index), b"value %d" % index)
    results.close()
    path = tmp_path / map_results.NAME
    path.write_bytes(path.read_bytes()[:-cut])
    again = MapResults(tmp_path)
    whole = 3 - 1 - (cut > 35)
    assert [again.get(index) for index in range(whole)] == [b"value %d" % index for index in range(whole)]
    assert again.get(2) is None
    again.add(2, digest_of(b"2"), b"value 2")
    again.close()
    last = MapResults(tmp_path)
    assert last.get(2) == b"value 2"
    last.close()


def test_a_damaged_value_is_dropped(tmp_path: Path) -> None:
    results = MapResults(tmp_path)
    results.add(0, 1, b"value")
    results.close()
    path = tmp_path / map_results.NAME
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    again = MapResults(tmp_path)
    assert len(again) == 0
    again.close()


def test_an_item_has_the_same_name_in_each_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, a checkpoint would be of no use to a later kernel, which defines the classes of its items again."""
    names = set()
    for _ in range(2):
        kernel = types.ModuleType("__main__")
        monkeypatch.setitem(sys.modules, "__main__", kernel)
        exec("class Question:\n    pass", vars(kernel))
        item = kernel.Question()
        item.text, item.weights = "why", torch.ones(3)
        blob, name = map_call.dump_named(item)
        names.add(name)
        assert map_call.load(blob).text == "why"
    item.weights[0] = 2
    names.add(map_call.dump_named(item)[1])
    assert len(names) == 2


def test_a_value_that_cannot_be_read_is_an_item_that_failed() -> None:
    values = [map_call.dump_value(1), b"not a pickle"]
    found = map_output.writer(None, stored=False)(lambda: values)
    assert found.value[0] == 1
    assert [each.index for each in found.value.failures] == [1]
    assert "1 item failed in the end: 1: its value can't be unpickled here: UnpicklingError" in found.notice
    assert found.lacks


def test_values_that_have_not_been_written_are_kept_beside_the_file(tmp_path: Path) -> None:
    """If the process is killed, too, since they are never elsewhere; and only as long as they are needed."""
    for is_needed in (True, False):
        results = MapResults(None, tmp_path / "values.jsonl")
        assert results.folder is not None
        results.add(0, 1, b"value")
        results.is_needed = is_needed
        results.close()
        assert results.folder.exists() is is_needed
        if is_needed:
            assert MapResults(results.folder).get(0) == b"value"


def test_what_is_not_ours_is_refused(tmp_path: Path) -> None:
    held = MapResults(tmp_path)
    with pytest.raises(ConfigurationError, match="another map_on_ranks saves to"):
        MapResults(tmp_path)
    held.close()
    path = tmp_path / map_results.NAME
    path.chmod(0o666)
    with pytest.raises(CheckpointError, match="other users may have written"):
        MapResults(tmp_path)
    path.chmod(0o600)
    path.write_bytes(b"something else")
    with pytest.raises(CheckpointError, match="is not a file of map_on_ranks"):
        MapResults(tmp_path)
    assert path.read_bytes() == b"something else"
    with pytest.raises(ConfigurationError, match="can't be used"):
        MapResults(path / "below")


@pytest.mark.parametrize("value", [1, "text", {"a": [1.5, None]}, b"", (1, {2})])
def test_plain_values_travel(value: Any) -> None:
    assert map_call.load(map_call.dump(value)) == value
    assert map_call.load(map_call.dump_value(value)) == value


@pytest.mark.parametrize(("found", "message"), [("ab", "returned str"), (3, "returned int"), ([1], "1 values for 2")])
def test_a_batch_needs_a_list_with_a_value_for_each(found: Any, message: str) -> None:
    ranks = Ranks([1, 2], lambda items: found, batch=2, size=1, retries=0)
    ranks.run()
    assert message in ranks.work.failures[0].error


def test_an_item_that_exits_fails_alone() -> None:
    ranks = Ranks([1, 2], lambda item: sys.exit(3) if item == 1 else item, size=1, retries=0)
    ranks.run()
    assert [(each.index, each.error) for each in ranks.work.failures.values()] == [(0, "SystemExit: 3")]


@dataclass
class Answer:
    text: str
    scores: Any


def test_values_are_written_as_lines_of_json(tmp_path: Path) -> None:
    """Readers of JSON take each line: there is no NaN in it."""
    values = [
        {"a": 1},
        "ü",
        [numpy.arange(2), {numpy.int64(3): numpy.float32(0.5)}],
        FailedItem(3, "no", 3),
        Answer("yes", numpy.array([0.5, math.nan])),
        "\ud83d",
        {1},
        -math.inf,
        {"at": datetime.date(2020, 1, 2)},
    ]
    path = tmp_path / "values.jsonl"
    found = map_output.writer(path, stored=False)(lambda: map(map_call.dump_value, values))
    *lines, last, infinite, at = path.read_text(encoding="utf-8").splitlines()
    assert lines == [
        '{"a": 1}',
        '"ü"',
        '[[0, 1], {"3": 0.5}]',
        '{"failed": "no"}',
        '{"text": "yes", "scores": [0.5, null]}',
        r'"\ud83d"',
    ]
    assert (infinite, at) == ("null", '{"at": "2020-01-02"}')
    assert "can't be written as JSON (set is not plain data)" in json.loads(last)["failed"]
    assert (found.value, found.lacks) == (path, True)
    assert found.notice == (
        "1 value can't be written as JSON, as the lines in values.jsonl say: 6. NaN and infinity are null in "
        "values.jsonl, because JSON has no form for them: in 2 lines, 4, 7"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["values.jsonl"]
    with pytest.raises(ConfigurationError, match="can't be written as JSON"):
        map_output.writer(tmp_path / "more.jsonl", stored=False).check(map_call.dump_value({1}))
