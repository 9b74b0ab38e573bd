import os

import psutil
import pytest

from notebook_accel.hardware import FixedProbe, cores, detect


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
def test_cores_outside_the_affinity_do_not_count() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert cores.usable() == 1
        assert detect({}, FixedProbe([])).cores == 1
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize(
    ("logical", "physical", "allowed", "quota", "expected"),
    [
        (8, 8, 8, None, 8),
        (8, 4, 8, None, 4),  # two threads a core
        (8, None, 8, None, 8),  # a container that does not say
        (8, 4, 2, None, 1),
        (8, 4, 1, None, 1),
        (8, 8, 8, 2.5, 2),
        (8, 8, 8, 0.5, 1),
        (8, 8, 2, 6.0, 2),
    ],
)
def test_cores_are_physical_and_within_what_is_allowed(
    logical: int,
    physical: int | None,
    allowed: int,
    quota: float | None,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cores.threads_per_core.cache_clear()
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True, *, _all=logical: _all if logical else physical)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(allowed)), raising=False)
    monkeypatch.setattr(cores, "container_quota", lambda: quota)
    assert cores.usable() == expected
    cores.threads_per_core.cache_clear()
