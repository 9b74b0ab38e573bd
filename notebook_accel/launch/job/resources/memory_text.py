"""What held a rank's memory when it ran out, in lines, and what helps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from notebook_accel.events import LiveArray, OutOfMemory
from notebook_accel.launch.job.rank_state import RankState
from notebook_accel.launch.job.text import duration, size
from notebook_accel.launch.wire import stack_frames

_VIEWER = "https://docs.pytorch.org/memory_viz"
_ON_HOST = (
    "What helps: fewer ranks or loader workers, since each has its own copy of what it loads; smaller batches; files "
    "that are read in parts or mapped (numpy.load(..., mmap_mode='r')); report(loss=loss.item()) instead of keeping "
    "tensors, which keep all that their gradients need."
)
_ON_DEVICE = (
    "What helps: smaller batches with gradient_accumulation_steps (find_executable_batch_size finds the largest that "
    "fits); mixed_precision='bf16'; FSDP, which splits the model among the ranks (--strategy fsdp); and ending other "
    "processes on the GPU, which %accelerate lists."
)


def of_exception(state: RankState, found: OutOfMemory | None) -> Iterator[str]:
    """Paragraphs for a rank that an exception for lack of memory has ended."""
    if found is None:
        return
    on_host = found.device == "cpu"
    if found.arrays:
        yield "\n".join(["The largest tensors and arrays were:", *map(_line, found.arrays)])
    if on_host:
        yield from _history(state)
    if state.snapshot:
        yield f"A snapshot of the device's memory is in {state.snapshot}: open it at {_VIEWER}."
    if found.note:
        yield f"{found.note}."
    yield _ON_HOST if on_host else _ON_DEVICE


def of_kill(state: RankState, *, oom_killed: bool) -> Iterator[str]:
    """Lines for a rank that was killed, perhaps because memory ran out."""
    yield from _history(state)
    if state.largest is not None:
        yield f"When it held {size(state.largest.resident)}, the largest tensors and arrays were:"
        yield from map(_line, state.largest.arrays)
    if oom_killed:
        yield _ON_HOST


def peaks(state: RankState) -> dict[str, str]:
    """The most memory of each phase: `{"peak in backward": "700 MB, GPU 3.0 GB"}`."""
    found = state.peaks
    if found is None:
        return {}
    texts = {}
    for phase in dict.fromkeys((*found.resident, *found.device)):
        host = [size(found.resident[phase])] if phase in found.resident else []
        device = [f"GPU {size(found.device[phase])}"] if phase in found.device else []
        texts[f"peak in {phase}" if phase != "rest" else "peak in the rest"] = ", ".join(host + device)
    return texts


def highest(state: RankState) -> str:
    """`at most 700 MB in backward`; empty if it is not known, or hardly more than what the rank holds."""
    if state.peaks is None or not state.peaks.resident:
        return ""
    values: Sequence[tuple[str, int]] = list(state.peaks.resident.items())
    phase, most = max(values, key=lambda item: item[1])
    if most < 1.02 * state.resident + 2**20:
        return ""
    return f"at most {size(most)}" + (f" in {phase}" if len(values) > 1 else "")


def _history(state: RankState) -> Iterator[str]:
    seconds, points = state.history.last()
    if points:
        yield f"Its memory over {duration(seconds)}: {', '.join(map(size, points))}."


def _line(array: LiveArray) -> str:
    name = array.name or ("without a name in these frames" if array.frame is None else "allocated")
    where = ""
    if array.frame is not None:
        line = stack_frames.source(array.frame)
        made = "assigned at " if array.name else "at "
        where = f", {made}{stack_frames.where(array.frame)}{f': {line}' if line else ''}"
    return f"  {size(array.nbytes):>8}  {name}: {array.what}{where}"
