"""Advice on a training run that could be faster: sentences, each with the numbers that it follows from.

A sentence is given only where the numbers leave no doubt. If nothing is wrong, there is none.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from statistics import median

from notebook_accel.events import HotLine, StepTimes
from notebook_accel.launch.job.text import percent, shortened
from notebook_accel.rank_spans import counted, named

_LEAST_STEPS = 8
_LEAST_SECONDS = 0.2
"""Fewer steps, or steps that took less together, say nothing yet."""
_DATA, _COPY, _SYNC, _REST, _CORE_WAIT = 0.15, 0.1, 0.4, 0.35, 0.1
"""From this share of the time on, the part is worth a sentence."""
_SLOWER = 0.15
"""A rank is slow if it works for so much longer than the others, as a fraction of theirs."""
_MOST_ON_LINE = 0.5
"""From this share of a part's samples on, a line is the reason."""
_UNPICKLING = 0.3
"""The same for unpickling the batches of a loader's workers."""
_SWAPPED_PAGES = 10
"""A step that reads more pages back from swap waits for the disk."""
_LONGEST_SOURCE = 60
_SHORT_STEP = 0.002
"""Seconds below which most of a step's computation is the overhead of Python and of launching operations."""
_WORK = ("data", "copy", "forward", "backward", "optimizer", "rest")
"""What a rank does by itself, which others wait for."""
_NAMES = {"data": "waiting for data", "copy": "copying batches", "rest": "code outside the prepared objects"}

ByRank = Mapping[int, StepTimes]


def advice(times: ByRank) -> list[str]:
    """What to change, the most important first; empty if nothing is wrong or too little was measured.

    Args:
        times: What the ranks have reported last, by rank.
    """
    enough = {rank: each for rank, each in times.items() if each.measured >= _LEAST_STEPS}
    enough = {rank: each for rank, each in enough.items() if _whole(each) >= _LEAST_SECONDS}
    return [sentence for find in _FINDERS for sentence in find(enough)] if enough else []


def _slow_loader(times: ByRank) -> Iterator[str]:
    share = _share(times, "data")
    if share < _DATA:
        return
    known = [each for each in times.values() if each.workers is not None]
    found = f"{percent(share)} of the time is spent waiting for data"
    if not known:
        yield f"{found}{_at(times, 'data')}: read it on other threads or processes while the device computes"
        return
    workers = min(each.workers or 0 for each in known)
    cores = max(1, known[0].cores // known[0].local_ranks)
    unpickling = median(each.unpickling for each in known)
    if workers and unpickling >= _UNPICKLING:
        yield (
            f"{found}, {percent(unpickling)} of which unpickles what the loader's {counted(workers, 'worker')} "
            f"{'sends' if workers == 1 else 'send'}: have the data set return tensors or NumPy arrays rather than "
            "lists and other Python objects"
        )
        return
    if workers:
        yield (
            f"{found}: the loader's {counted(workers, 'worker')} can't keep up; make a sample cheaper to load, or use "
            f"more workers (the machine has {counted(cores, 'core')} for each rank)"
        )
        return
    data = median(each.seconds.get("data", 0.0) / each.measured for each in known)
    others = median(_whole(each) / each.measured for each in known) - data
    needed = math.ceil(data / others) if others > 0 else cores
    found += _at(times, "data")
    if needed <= max(2, cores):
        yield f"{found}: the loader has 0 workers; num_workers={needed} would hide it"
    else:
        yield (
            f"{found}: the loader has 0 workers; it would take {needed} to hide it, and the machine has "
            f"{counted(cores, 'core')} for each rank, so also make a sample cheaper to load"
        )


def _slow_rank(times: ByRank) -> Iterator[str]:
    if len(times) < 2:
        return
    work = {rank: sum(each.seconds.get(part, 0.0) for part in _WORK) / each.measured for rank, each in times.items()}
    slowest = max(work, key=lambda rank: work[rank])
    others = [rank for rank in times if rank != slowest]
    usual = median(work[rank] for rank in others)
    behind = work[slowest] - usual
    waits = median(_of(times[rank], "sync") for rank in others) - _of(times[slowest], "sync")
    if behind < _SLOWER * usual or waits < behind / 2:
        return  # no rank waits for it
    extra = {part: _of(times[slowest], part) - median(_of(times[rank], part) for rank in others) for part in _WORK}
    part = max(extra, key=lambda name: extra[name])
    line = _at({slowest: times[slowest]}, part)
    yield (
        f"rank {slowest} is {percent(behind / usual)} slower than the {'median' if len(others) > 1 else 'other rank'}, "
        f"mostly in {_NAMES.get(part, part)}{line}; {named(others)} "
        f"wait{'' if len(others) > 1 else 's'} for it in gradient synchronization, {1000 * waits:.1f} ms a step"
    )


def _frequent_sync(times: ByRank) -> Iterator[str]:
    often = median(each.syncs / each.measured for each in times.values())
    share = _share(times, "sync")
    if often >= 1.5 and share >= 0.05:
        yield (
            f"gradients are synchronized {often:.0f} times per update, which takes {percent(share)} of the time: put "
            "each batch into `with accelerator.accumulate(model):`, which synchronizes once"
        )


def _expensive_sync(times: ByRank) -> Iterator[str]:
    share = _share(times, "sync")
    if share < _SYNC or any([*_slow_rank(times), *_frequent_sync(times)]) or _core_wait(times) >= _CORE_WAIT:
        return  # which explain it
    yield (
        f"{percent(share)} of the time is spent waiting for gradient synchronization: larger batches, or gradient "
        "accumulation, synchronize less often"
    )


def _oversubscribed(times: ByRank) -> Iterator[str]:
    share = _core_wait(times)
    first = next(iter(times.values()))
    wanted = first.local_ranks * (first.threads + (first.workers or 0))
    if share < _CORE_WAIT or wanted <= first.cores:
        return
    threads = max(1, first.cores // first.local_ranks)
    workers = f" and {counted(first.workers, 'loader worker')}" if first.workers else ""
    yield (
        f"{percent(share)} of the time is spent waiting for a CPU core: {counted(first.local_ranks, 'rank')} with "
        f"{counted(first.threads, 'thread')}{workers} each share {counted(first.cores, 'core')}; "
        + (f"set OMP_NUM_THREADS={threads}" if first.threads > threads else "use fewer workers or ranks")
    )


def _short_steps(times: ByRank) -> Iterator[str]:
    computed = median(sum(_of(each, part) for part in ("forward", "backward", "optimizer")) for each in times.values())
    passes = median(each.backwards / each.measured for each in times.values())
    rows = median(each.samples / each.backwards if each.backwards else 0.0 for each in times.values())
    if passes and computed / max(1.0, passes) < _SHORT_STEP and _share(times, "data") < _DATA:
        size = f" of {counted(round(rows), 'sample')}" if rows else ""
        yield (
            f"a batch{size} computes for just {1000 * computed / max(1.0, passes):.1f} ms, most of which is "
            "the overhead of each operation: a larger batch takes hardly any longer"
        )


def _slow_rest(times: ByRank) -> Iterator[str]:
    share = _share(times, "rest")
    if share < _REST:
        return
    found = f"{percent(share)} of the time is spent outside the loader, the model, backward and the optimizer"
    line = _at(times, "rest")
    if line:
        yield f"{found}{line}: don't do this on every step, or make it cheaper"
    else:
        yield f"{found}: look for logging, .item(), evaluation, or checkpoints on every step with job.flamegraph()"


def _unused_search(times: ByRank) -> Iterator[str]:
    if any(each.unused_search for each in times.values()):
        yield (
            "DDP searches each backward pass for unused parameters, but all of them are used: leave out "
            "find_unused_parameters=True"
        )


def _swapping(times: ByRank) -> Iterator[str]:
    rank = max(times, key=lambda rank: times[rank].swapped_pages / max(1, times[rank].steps))
    pages = times[rank].swapped_pages / max(1, times[rank].steps)
    if pages >= _SWAPPED_PAGES:
        yield (
            f"rank {rank} reads {pages:.0f} pages of memory back from swap at each step: the machine's memory is full, "
            "so use fewer ranks or loader workers, or smaller batches"
        )


def _slow_copy(times: ByRank) -> Iterator[str]:
    share = _share(times, "copy")
    if share >= _COPY:
        yield (
            f"{percent(share)} of the time is spent copying batches to the device: use DataLoader(pin_memory=True) and "
            "DataLoaderConfiguration(non_blocking=True)"
        )


_FINDERS: tuple[Callable[[ByRank], Iterator[str]], ...] = (
    _swapping,
    _oversubscribed,
    _slow_loader,
    _slow_rank,
    _frequent_sync,
    _expensive_sync,
    _slow_copy,
    _slow_rest,
    _unused_search,
    _short_steps,
)


def _whole(times: StepTimes) -> float:
    """Seconds of all measured steps."""
    return sum(times.seconds.values())


def _of(times: StepTimes, part: str) -> float:
    """Seconds a step."""
    return times.seconds.get(part, 0.0) / times.measured


def _at(times: ByRank, part: str) -> str:
    """`, mostly at In[3] line 12 (loss.item())`, if one line is the reason on most of the ranks; otherwise empty."""
    lines = Counter(
        (line.where, line.source) for each in times.values() for line in each.lines if _explains(line, part)
    )
    (line, count), *_ = lines.most_common(1) or [(("", ""), 0)]
    if 2 * count <= len(times):
        return ""
    where, source = line
    return f", mostly at {where}" + (f" ({shortened(source, _LONGEST_SOURCE)})" if source else "")


def _explains(line: HotLine, part: str) -> bool:
    return line.part == part and line.share >= _MOST_ON_LINE


def _share(times: ByRank, part: str) -> float:
    """The share of a part at the median rank."""
    return median(each.seconds.get(part, 0.0) / _whole(each) for each in times.values())


def _core_wait(times: ByRank) -> float:
    """The share of the time for which the median rank waited for a core."""
    return median(each.core_wait / (_whole(each) / each.measured * each.steps) for each in times.values())
