"""The progress that a loader reports."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from notebook_accel import Accelerator, events
from notebook_accel.events import Bar, Event
from notebook_accel.train.ranks import step_observers


@pytest.fixture
def reported() -> Iterator[list[Bar]]:
    found: list[Bar] = []

    def hear(event: Event) -> None:
        assert isinstance(event, Bar)
        found.append(event)

    events.set_sink(hear)
    yield found
    events.set_sink(None)


def prepared(size: int = 5) -> DataLoader[torch.Tensor]:
    loader: DataLoader[torch.Tensor] = Accelerator(cpu=True).prepare(DataLoader(torch.arange(float(size))))  # type: ignore[arg-type]
    return loader


def test_progress_is_reported_at_intervals(reported: list[Bar], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(100))
    monkeypatch.setattr(step_observers, "time", type("Time", (), {"monotonic": lambda: float(next(clock))}))
    list(prepared())
    assert [(bar.n, bar.total, bar.closed) for bar in reported] == [*((n, 5, False) for n in range(5)), (5, 5, True)]
    assert {bar.description for bar in reported} == {"batch"}


def test_fast_batches_are_reported_less_often(reported: list[Bar]) -> None:
    began = time.monotonic()
    list(prepared(3000))
    assert len(reported) <= 3 + (time.monotonic() - began) / 0.1
    assert (reported[-1].n, reported[-1].closed) == (3000, True)


def test_a_loader_has_the_same_bar_in_every_epoch(reported: list[Bar]) -> None:
    first, second = prepared(), prepared()
    for loader in (first, second, first):
        list(loader)
    numbers = list(dict.fromkeys(bar.bar for bar in reported))
    assert len(numbers) == 2
    assert max(numbers) < 0
    assert reported[-1].bar == reported[0].bar


def test_an_epoch_that_is_left_early_closes_its_bar(reported: list[Bar]) -> None:
    for n, _ in enumerate(prepared()):
        if n == 2:
            break
    assert (reported[-1].n, reported[-1].closed) == (2, True)


def test_a_loader_without_a_length_is_reported_too(reported: list[Bar]) -> None:
    class Stream(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            yield from range(4)

    loader = Accelerator(cpu=True).prepare(DataLoader(Stream()))
    assert len(list(loader)) == 4
    assert {bar.total for bar in reported} == {None}


def test_where_nobody_listens_the_batches_come_as_they_are() -> None:
    batches = iter([1, 2])
    assert step_observers.LoaderBars().batches([], batches) is batches
