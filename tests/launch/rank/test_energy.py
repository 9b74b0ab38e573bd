"""When a rank reads energy counters, and what it reports."""

from __future__ import annotations

from pathlib import Path

from notebook_accel.events import EnergyUsed
from notebook_accel.hardware.energy import EnergyMeter
from notebook_accel.launch.rank.energy import Energy
from tests.hardware.fakes import write_rapl_zone


def test_a_call_is_measured_from_its_first_second_to_its_end(tmp_path: Path) -> None:
    counter = write_rapl_zone(tmp_path, "intel-rapl:0", "package-0", 1_000_000)
    energy = Energy(lambda: EnergyMeter("", tmp_path))
    assert energy.sample(10.0) == energy.sample(10.9) == []
    assert energy.sample(11.0) == []  # the first reading
    counter.write_text("3_000_000")
    assert energy.sample(15.9) == []
    [event] = energy.sample(16.0)
    assert isinstance(event, EnergyUsed)
    assert (list(event.packages.values()), event.seconds) == ([2.0], 5.0)
    counter.write_text("4_000_000")
    [event] = energy.on_call_end(18.0)
    assert isinstance(event, EnergyUsed)
    assert (list(event.packages.values()), event.seconds) == ([3.0], 7.0)
    assert energy.on_call_end(19.0) == []


def test_the_next_call_begins_at_zero(tmp_path: Path) -> None:
    counter = write_rapl_zone(tmp_path, "intel-rapl:0", "package-0", 0)
    energy = Energy(lambda: EnergyMeter("", tmp_path))
    for now in (0.0, 1.0):
        energy.sample(now)
    energy.on_call_end(2.0)
    counter.write_text("9_000_000")
    for now in (50.0, 51.0):
        assert energy.sample(now) == []
    counter.write_text("10_000_000")
    [event] = energy.on_call_end(52.0)
    assert isinstance(event, EnergyUsed)
    assert (list(event.packages.values()), event.seconds) == ([1.0], 1.0)


def test_nothing_is_opened_for_short_calls_and_once_where_nothing_counts(tmp_path: Path) -> None:
    opened: list[EnergyMeter] = []

    def open_meter() -> EnergyMeter:
        opened.append(EnergyMeter("", tmp_path))
        return opened[-1]

    energy = Energy(open_meter)
    for now in (0.0, 0.9):
        assert energy.sample(now) == []
    assert energy.on_call_end(0.95) == []
    assert not opened
    for now in (10.0, 11.0, 20.0, 30.0):
        assert energy.sample(now) == []
    assert energy.on_call_end(31.0) == energy.sample(40.0) == energy.sample(50.0) == []
    assert len(opened) == 1
