"""The energy of a job: whose it is, and what is said where some of it is not known."""

from __future__ import annotations

from notebook_accel.events import AttemptStarted, EnergyUsed, Event
from notebook_accel.insight import comparison
from notebook_accel.insight.job_facts import facts
from notebook_accel.jupyter.reader.job_row import row
from notebook_accel.launch.job import resources
from notebook_accel.launch.job.energy import amount, mass
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import JobState
from notebook_accel.panel.panel_state import StateMaker

KWH = 3.6e6


def job(*readings: Event | None, factor: float | None = None) -> Job:
    made = Job("train", 0, len(readings), co2_per_kwh=factor)
    made.apply(None, AttemptStarted(0))
    for rank, reading in enumerate(readings):
        if reading is not None:
            made.apply(rank, reading)
    return made


def used(gpu: str = "", joules: float = KWH, seconds: float = 3600.0, **packages: float) -> EnergyUsed:
    return EnergyUsed({gpu: joules} if gpu else {}, packages, seconds)


def test_ranks_that_share_a_counter_are_counted_once() -> None:
    made = job(used("a", KWH, package=KWH / 10), used("a", KWH / 2, package=KWH / 20), used("b", KWH))
    found = made.energy
    assert found is not None
    assert (found.gpus, found.cpus, found.gpu_count) == (2.0, 0.1, 2)
    assert str(found) == (
        "2.1 kWh in 1:00:00: 2 GPUs 2 kWh, CPUs 100 Wh (without those of 1 rank); all that ran on them is included"
    )
    assert facts(made)["energy"] == {
        "kwh": 2.1,
        "gpus": 2.0,
        "cpus": 0.1,
        "ranks_without_gpu": 0,
        "ranks_without_cpus": 1,
        "seconds": 3600.0,
        "grams_co2": None,
    }


def test_what_is_not_measured_is_not_zero() -> None:
    made = job(used("a", KWH / 1000))
    found = made.energy
    assert found is not None
    assert found.cpus is None
    assert found.brief == "1 Wh of GPUs"
    assert "CPUs not measured" in str(found)
    assert job(None).energy is None
    assert facts(job(None))["energy"] is None
    assert job(EnergyUsed({}, {}, 5.0)).energy is None


def test_ranks_of_other_kernels_are_missing() -> None:
    made = Job("train", 0, 2, world_size=4)
    made.apply(0, used("a"))
    made.apply(1, used("b"))
    found = made.energy
    assert found is not None
    assert found.ranks_without_gpu == 2
    assert found.brief == "2 kWh of GPUs of some ranks"


def test_attempts_are_summed_and_a_journal_keeps_them() -> None:
    made = job(used("a"), used("b"))
    made.apply(None, AttemptStarted(1))
    assert made.energy is not None
    made.apply(0, used("a", KWH / 2, 60.0))
    made.apply(1, used("c", KWH, 60.0))
    found = made.energy
    assert found is not None
    assert (found.gpus, found.gpu_count, found.seconds) == (3.5, 3, 3660.0)
    (_, start), *rest = made.events()
    again = JobState(start)  # type: ignore[arg-type]
    for rank, event in rest:
        again.apply(rank, event)
    assert again.energy == found


def test_co2_follows_from_the_factor_of_the_launch() -> None:
    found = job(used("a"), factor=400.0).energy
    assert found is not None
    assert found.grams_co2 == 400.0
    assert str(found).startswith("1 kWh, 400 g of CO₂ in 1:00:00: 1 GPU 1 kWh, CPUs not measured")


def test_a_panel_a_row_and_a_rank_show_it() -> None:
    made = job(used("a", 36_000.0, 90.0))
    assert row(made)["details"].endswith("10 Wh of GPUs")
    assert resources.facts(made.ranks[0]) == {"energy of its GPU": "10 Wh in 1:30"}
    assert StateMaker(made).make()["head"]["about"]["Energy"].startswith("10 Wh in 1:30: 1 GPU 10 Wh")
    assert "Energy" not in StateMaker(job(None)).make()["head"]["about"]


def test_a_comparison_has_gpus_and_cpus_apart() -> None:
    first, second = job(used("a", KWH, package=KWH)), job(used("a", 2 * KWH))
    lines = {line.name: line for line in comparison.compare(first, second).lines}
    assert lines["energy of GPUs"] == ("energy of GPUs", "1 kWh", "2 kWh", "2.00×")
    assert lines["energy of CPUs"] == ("energy of CPUs", "1 kWh", "", "")
    partial = {line.name: line for line in comparison.compare(first, job(used("a"), None)).lines}
    assert partial["energy of GPUs"] == ("energy of GPUs", "1 kWh", "1 kWh, without 1 rank", "")


def test_amounts_are_short() -> None:
    assert [amount(kwh) for kwh in (0.0000123, 0.0123, 0.9999, 1.0, 123.45)] == [
        "0.0123 Wh",
        "12.3 Wh",
        "1000 Wh",
        "1 kWh",
        "123 kWh",
    ]
    assert [mass(grams) for grams in (0.5, 412.3, 1234.0)] == ["0.5 g", "412 g", "1.23 kg"]
