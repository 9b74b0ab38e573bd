"""The advice that follows from the times of a training run's steps."""

from typing import Any

import pytest

from notebook_accel.events import HotLine, StepTimes
from notebook_accel.insight.advice import advice

HEALTHY = {"data": 0.2, "forward": 2.0, "backward": 4.0, "sync": 0.3, "optimizer": 0.5, "rest": 0.2}
"""Seconds of 100 steps."""


def times(seconds: dict[str, float] | None = None, **facts: Any) -> StepTimes:
    given: dict[str, Any] = {"workers": 0, "cores": 16, "local_ranks": 2, "threads": 4, "backwards": 100, "syncs": 100}
    return StepTimes(HEALTHY | (seconds or {}), steps=100, measured=100, samples=3200, **given | facts)


def of(*ranks: StepTimes) -> list[str]:
    return advice(dict(enumerate(ranks)))


def test_a_training_that_has_nothing_wrong_gets_none() -> None:
    assert of(times(), times({"forward": 2.1, "sync": 0.2})) == []
    assert of(times(local_ranks=1, syncs=0)) == []
    assert of() == []


def test_too_few_steps_say_nothing() -> None:
    assert advice({0: StepTimes({"data": 1.0}, steps=3, measured=3)}) == []
    assert advice({0: StepTimes({"data": 0.01}, steps=30, measured=30)}) == []


@pytest.mark.parametrize(
    ("data", "facts", "end"),
    [
        (13.0, {}, "the loader has 0 workers; num_workers=2 would hide it"),
        (139.0, {}, "it would take 20 to hide it, and the machine has 8 cores for each rank, so also make a sample"),
        (13.0, {"workers": 1}, "the loader's 1 worker can't keep up"),
        (13.0, {"workers": None}, "read it on other threads or processes"),
    ],
)
def test_a_slow_loader_needs_workers(data: float, facts: dict[str, Any], end: str) -> None:
    (found,) = of(*[times({"data": data}, **facts)] * 2)
    assert "of the time is spent waiting for data" in found
    assert end in found


def test_a_slow_rank_is_named_with_the_part_that_others_wait_for() -> None:
    fast = times({"sync": 2.3})
    (found,) = of(fast, fast, fast, times({"forward": 4.0, "sync": 0.1}))
    assert found == (
        "rank 3 is 28% slower than the median, mostly in forward; ranks 0-2 wait for it in gradient synchronization, "
        "22.0 ms a step"
    )
    assert of(times(), times({"forward": 4.0})) == []  # the other does not wait for it


def test_gradients_that_are_synchronized_with_every_batch_should_be_accumulated() -> None:
    (found,) = of(*[times({"sync": 2.0}, backwards=800, syncs=800)] * 2)
    assert found.startswith("gradients are synchronized 8 times per update, which takes 22% of the time")
    assert of(*[times({"sync": 1.0}, backwards=800)] * 2) == []


def test_cores_are_oversubscribed_only_if_the_ranks_ask_for_more_than_there_are() -> None:
    (found,) = of(*[times(core_wait=2.0, cores=4)] * 2)
    assert found == (
        "27% of the time is spent waiting for a CPU core: 2 ranks with 4 threads each share 4 cores; "
        "set OMP_NUM_THREADS=2"
    )
    assert of(*[times(core_wait=2.0)] * 2) == []


def test_a_tiny_batch_is_mostly_overhead() -> None:
    tiny = {part: seconds / 70 for part, seconds in HEALTHY.items()}
    (found,) = of(*[StepTimes(tiny | {"rest": 0.15}, steps=100, measured=100, samples=200, backwards=100)] * 2)[-1:]
    assert found.startswith("a batch of 2 samples computes for just 0.9 ms")


def test_the_line_that_takes_most_of_a_part_is_named() -> None:
    slow = times({"rest": 6.0}, lines=[HotLine("rest", "In[3] line 12", "losses.append(loss.item())", 0.8)])
    assert of(slow, slow)[0].endswith(
        "backward and the optimizer, mostly at In[3] line 12 (losses.append(loss.item())): don't do this on "
        "every step, or make it cheaper"
    )
    assert "mostly" not in of(slow, times({"rest": 6.0}))[0]  # another line on the other rank
    spread_out = times({"rest": 6.0}, lines=[HotLine("rest", "In[3] line 12", "losses.append(loss.item())", 0.3)])
    assert "mostly" not in of(spread_out)[0]
    locked = times({"data": 13.0}, lines=[HotLine("data", "In[2] line 8", "with lock:", 0.9)])
    assert ", mostly at In[2] line 8 (with lock:): the loader has 0 workers" in of(locked)[0]


def test_workers_that_send_what_takes_long_to_unpickle_are_not_too_few() -> None:
    (found,) = of(*[times({"data": 13.0}, workers=4, unpickling=0.6)] * 2)
    assert "60% of which unpickles what the loader's 4 workers send" in found
    assert "can't keep up" not in found


def test_a_rank_that_swaps_waits_for_the_disk() -> None:
    (found,) = of(times(), times(swapped_pages=20_000))
    assert found.startswith("rank 1 reads 200 pages of memory back from swap at each step")
    assert of(times(swapped_pages=100)) == []


def test_a_search_for_unused_parameters_in_vain_is_named() -> None:
    (found,) = of(times(unused_search=True), times())
    assert found.endswith("leave out find_unused_parameters=True")


def test_other_parts_that_take_long_are_named() -> None:
    assert "outside the loader" in of(times({"rest": 6.0}))[0]
    assert "pin_memory=True" in of(times({"copy": 2.0}))[0]
    assert of(*[times({"sync": 7.0})] * 2)[0].startswith(
        "50% of the time is spent waiting for gradient synchronization"
    )
