"""What ranks use of their machines, as users read it: processors, GPUs and memory, and what was short of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from notebook_accel import hardware
from notebook_accel.events import GpuUsage, LiveArray, OutOfMemory
from notebook_accel.hardware import GpuReading
from notebook_accel.hardware.device_probe import HARDWARE, POWER_BRAKE, TEMPERATURE
from notebook_accel.launch.job import energy
from notebook_accel.launch.job.rank_state import RankState
from notebook_accel.launch.job.text import duration, size
from notebook_accel.launch.wire import stack_frames

if TYPE_CHECKING:
    from notebook_accel.hardware import Sensors
    from notebook_accel.launch.job.job_state import JobState

_SLOWED = "The GPU runs below its clock rate because"
_ADVICE = {
    "uncorrected memory errors": "results may be wrong; restart the job, and have the GPU checked",
    "uncorrected errors": "results may be wrong; restart the job, and have the GPU checked",
    "PCIe replays": "transfers were repeated, which makes them slow; check how the GPU is seated",
}
_LINK_ADVICE = "the link between GPUs had to repeat data, which makes collectives slow; have it checked"
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


def percents(state: RankState) -> Iterator[tuple[str, str]]:
    """How busy its process is, and its GPU if it has one: `("CPU", "180%")`. Empty while nothing is read."""
    if state.phase.ended:
        return
    if state.process is not None:
        yield "CPU", f"{state.process.cpu:.0f}%"
    if state.gpu is not None and state.gpu.utilization is not None:
        yield "GPU", f"{state.gpu.utilization:.0f}%"


def brief(state: RankState) -> str:
    """`GPU 87%, 41.0 GB`, or `CPU 180%, 512 MB`; empty while nothing is read."""
    busy = dict(percents(state))
    if state.gpu is not None and not state.phase.ended:
        used = "" if state.gpu.memory_used is None else size(state.gpu.memory_used)
        parts = [part for part in (busy.get("GPU"), used) if part]
        return f"GPU {', '.join(parts)}" if parts else ""
    return f"CPU {busy['CPU']}, {size(state.process.resident)}" if state.process is not None and busy else ""


def facts(state: RankState) -> dict[str, str]:
    """Everything that was read, by what it is, the energy of its devices, and the most memory of each phase."""
    found = {} if state.phase.ended else dict(_process_facts(state))
    if state.gpu is not None and not state.phase.ended:
        found |= dict(_gpu_facts(state.gpu))
    return found | energy.of_rank(state) | memory_peaks(state)


def warning(state: RankState) -> str:
    """What is wrong with the rank's GPU, in sentences; empty if nothing is."""
    if state.phase.ended or state.gpu is None:
        return ""
    return " ".join(f"{sentence}." for sentence in gpu_warnings(state.gpu))


def warnings(job: JobState) -> list[str]:
    """The warnings of all ranks, each with the first rank that it concerns."""
    first: dict[str, int] = {}
    for state in job.ranks:
        if text := warning(state):
            first.setdefault(text, state.rank)
    return [f"Rank {rank}: {text}" for text, rank in first.items()]


def _process_facts(state: RankState) -> Iterator[tuple[str, str]]:
    found = state.process
    if found is None:
        return
    yield "CPU", f"{found.cpu:.0f}% of a core"
    if found.children:
        name = "child process" if found.children == 1 else "child processes"
        yield name, f"{found.children}: {found.children_cpu:.0f}% of a core, {size(found.children_resident)}"


def _gpu_facts(gpu: GpuUsage) -> Iterator[tuple[str, str]]:
    if gpu.utilization is not None:
        yield "GPU", f"{gpu.utilization:.0f}% busy"
    if gpu.memory_used is not None:
        total = f" of {size(gpu.memory_total)}" if gpu.memory_total else ""
        yield "GPU memory", f"{size(gpu.memory_used)}{total}"
    if gpu.temperature is not None:
        yield "temperature", f"{gpu.temperature:.0f} °C"
    if gpu.power is not None:
        yield "power", f"{gpu.power:.0f} W" + (f" of {gpu.power_limit:.0f} W" if gpu.power_limit else "")
    if gpu.throttled:
        yield "clock reduced by", ", ".join(gpu.throttled)
    for name, count in gpu.errors.items():
        yield name, str(count)


def gpu_warnings(gpu: GpuUsage) -> Iterator[str]:
    """What is wrong with a GPU, a sentence each without its period."""
    if TEMPERATURE in gpu.throttled:
        degrees = "" if gpu.temperature is None else f" ({gpu.temperature:.0f} °C)"
        yield f"{_SLOWED} it is too hot{degrees}; check its cooling"
    if POWER_BRAKE in gpu.throttled:
        yield f"{_SLOWED} the power supply asked for it; check the machine's power"
    if HARDWARE in gpu.throttled:
        yield f"{_SLOWED} its hardware protects itself; check its cooling and power"
    for name, count in gpu.errors.items():
        yield f"{name} have risen by {count} since it was first shown here: {_ADVICE.get(name, _LINK_ADVICE)}"


def memory_at_exception(state: RankState, found: OutOfMemory | None) -> Iterator[str]:
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


def memory_at_kill(state: RankState, *, oom_killed: bool) -> Iterator[str]:
    """Lines for a rank that was killed, perhaps because memory ran out."""
    yield from _history(state)
    if state.largest is not None:
        yield f"When it held {size(state.largest.resident)}, the largest tensors and arrays were:"
        yield from map(_line, state.largest.arrays)
    if oom_killed:
        yield _ON_HOST


def memory_peaks(state: RankState) -> dict[str, str]:
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


def memory_highest(state: RankState) -> str:
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


class GpuMeter:
    """Reads what the drivers measure on the GPUs of this machine. For one thread at a time.

    Args:
        open_sensors: Opens the drivers' libraries.
    """

    def __init__(self, open_sensors: Callable[[], list[Sensors]] = hardware.open_sensors) -> None:
        self._open_sensors = open_sensors
        self._sensors: list[Sensors] | None = None
        self._errors: dict[str, Mapping[str, int]] = {}
        """The error counters of each GPU at its first reading."""

    def open(self) -> bool:
        """Opens the libraries unless they are, which takes longer than reading; returns whether they were not."""
        if self._sensors is not None:
            return False
        self._sensors = self._open_sensors()
        return True

    def read(self) -> dict[str, tuple[str, GpuUsage]]:
        """The name of each GPU and what it does now, by its UUID. The next call after `close` opens the libraries."""
        self.open()
        found = {uuid: reading for each in self._sensors or () for uuid, reading in each.read().items()}
        return {uuid: (reading.name, self._usage(uuid, reading)) for uuid, reading in found.items()}

    def close(self) -> None:
        """Releases the libraries."""
        for each in self._sensors or ():
            with contextlib.suppress(Exception):  # whatever ends now matters more
                each.close()
        self._sensors = None

    def _usage(self, uuid: str, reading: GpuReading) -> GpuUsage:
        """What a reading says, with the errors that have occurred since the first reading of this GPU."""
        before = self._errors.setdefault(uuid, reading.errors)
        risen = {name: count - before.get(name, 0) for name, count in reading.errors.items()}
        values = {name: value for name, value in vars(reading).items() if name not in ("name", "errors")}
        return GpuUsage(**values, errors={name: count for name, count in risen.items() if count > 0})
