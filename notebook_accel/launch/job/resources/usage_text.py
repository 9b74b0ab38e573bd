"""What a rank uses, as text: a few words for its row, the rest for who expands it, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from notebook_accel.events import GpuUsage
from notebook_accel.hardware.sensors.gpu_readings import HARDWARE, POWER_BRAKE, TEMPERATURE
from notebook_accel.launch.job.resources import memory_text
from notebook_accel.launch.job.text import size

if TYPE_CHECKING:
    from notebook_accel.launch.job.job_state import JobState
    from notebook_accel.launch.job.rank_state import RankState

_SLOWED = "The GPU runs below its clock rate because"
_ADVICE = {
    "uncorrected memory errors": "results may be wrong; restart the job, and have the GPU checked",
    "uncorrected errors": "results may be wrong; restart the job, and have the GPU checked",
    "PCIe replays": "transfers were repeated, which makes them slow; check how the GPU is seated",
}
_LINK_ADVICE = "the link between GPUs had to repeat data, which makes collectives slow; have it checked"


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
    """Everything that was read, by what it is, and the most memory of each phase."""
    found = {} if state.phase.ended else dict(_process_facts(state))
    if state.gpu is not None and not state.phase.ended:
        found |= dict(_gpu_facts(state.gpu))
    return found | memory_text.peaks(state)


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
