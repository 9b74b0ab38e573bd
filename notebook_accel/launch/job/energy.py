"""The energy of a job: of the devices that its ranks ran on, while they ran, for whatever else ran there too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from notebook_accel.events import EnergyUsed
from notebook_accel.launch.job.text import duration, value
from notebook_accel.rank_spans import counted

if TYPE_CHECKING:
    from notebook_accel.launch.job.rank_state import RankState

_JOULES_PER_KWH = 3.6e6
_WHOSE = "all that ran on them is included"


@dataclass(frozen=True, repr=False)
class Energy:
    """What was counted; prints as text."""

    gpus: float | None
    """Kilowatt-hours; `None` if no GPU was counted."""
    cpus: float | None
    """Kilowatt-hours of processors and the memory at them; `None` if none were counted."""
    gpu_count: int
    seconds: float
    """How long, of the job's time."""
    ranks_without_gpu: int
    """Ranks whose GPU is missing in the sum, of a job that has others."""
    ranks_without_cpus: int
    co2_per_kwh: float | None
    """Grams, as the user has said."""

    @property
    def kwh(self) -> float:
        """All that was counted."""
        return (self.gpus or 0.0) + (self.cpus or 0.0)

    @property
    def grams_co2(self) -> float | None:
        """`None` without `co2_per_kwh`."""
        return None if self.co2_per_kwh is None else self.co2_per_kwh * self.kwh

    def __repr__(self) -> str:
        parts = []
        if self.gpus is not None:
            gpus = f"{self.gpu_count} GPU{'' if self.gpu_count == 1 else 's'}"
            parts.append(f"{gpus} {amount(self.gpus)}{_missing(self.ranks_without_gpu)}")
        if self.cpus is not None:
            parts.append(f"CPUs {amount(self.cpus)}{_missing(self.ranks_without_cpus)}")
        else:
            parts.append("CPUs not measured")
        return f"{amount(self.kwh)}{self._co2} in {duration(self.seconds)}: {', '.join(parts)}; {_WHOSE}"

    @property
    def brief(self) -> str:
        """`1.2 kWh, 480 g of CO₂`; without CPUs that were not measured, `1.2 kWh of GPUs`."""
        whose = "" if self.cpus is not None and self.gpus is not None else " of GPUs" if self.gpus else " of CPUs"
        partly = " of some ranks" if self.ranks_without_gpu or self.ranks_without_cpus else ""
        return f"{amount(self.kwh)}{whose}{partly}{self._co2}"

    @property
    def _co2(self) -> str:
        return "" if self.grams_co2 is None else f", {mass(self.grams_co2)} of CO₂"


def of(used: EnergyUsed | None, co2_per_kwh: float | None) -> Energy | None:
    """What was counted, in words; `None` if nothing was."""
    if used is None or not (used.gpus or used.packages):
        return None
    gpus, cpus = (sum(each.values()) / _JOULES_PER_KWH if each else None for each in (used.gpus, used.packages))
    return Energy(
        gpus,
        cpus,
        len(used.gpus),
        used.seconds,
        used.without_gpu,
        used.without_packages,
        co2_per_kwh,
    )


def total(earlier: EnergyUsed | None, ranks: Sequence[RankState], world_size: int) -> EnergyUsed | None:
    """What earlier attempts and this one have used.

    Ranks that share a device read the same counter at about the same time, so the greatest of their readings counts.
    """
    found = [state.energy for state in ranks if state.energy is not None]
    if not found:
        return earlier
    gpus = _greatest([each.gpus for each in found])
    packages = _greatest([each.packages for each in found])
    now = EnergyUsed(
        gpus,
        packages,
        max(each.seconds for each in found),
        world_size - sum(bool(each.gpus) for each in found) if gpus else 0,
        world_size - sum(bool(each.packages) for each in found) if packages else 0,
    )
    if earlier is None:
        return now
    return EnergyUsed(
        _sums(earlier.gpus, now.gpus),
        _sums(earlier.packages, now.packages),
        earlier.seconds + now.seconds,
        max(earlier.without_gpu, now.without_gpu),
        max(earlier.without_packages, now.without_packages),
    )


def of_rank(state: RankState) -> dict[str, str]:
    """What was counted for a rank, by what it is."""
    if state.energy is None:
        return {}
    kinds = {"energy of its GPU": state.energy.gpus, "energy of its machine's CPUs": state.energy.packages}
    return {
        name: f"{amount(sum(joules.values()) / _JOULES_PER_KWH)} in {duration(state.energy.seconds)}"
        for name, joules in kinds.items()
        if joules
    }


def amount(kwh: float) -> str:
    """`1.2 kWh`, or `12 Wh`."""
    return f"{value(_rounded(kwh))} kWh" if kwh >= 1 else f"{value(_rounded(1000 * kwh))} Wh"


def mass(grams: float) -> str:
    """`1.2 kg`, or `12 g`."""
    return f"{value(_rounded(grams / 1000))} kg" if grams >= 1000 else f"{value(_rounded(grams))} g"


def _rounded(number: float) -> float:
    """To three digits, which is more than counters are exact to."""
    return float(f"{number:.3g}")


def _missing(ranks: int) -> str:
    return f" (without those of {counted(ranks)})" if ranks else ""


def _greatest(readings: Sequence[Mapping[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for each in readings:
        for name, joules in each.items():
            found[name] = max(joules, found.get(name, 0.0))
    return found


def _sums(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in (*one, *other)}
