"""A pause of the garbage collector ends, and leaves a collector off that was off."""

import gc

import pytest

from notebook_accel.garbage_collection import paused


def fail_in_a_pause() -> None:
    with paused():
        assert not gc.isenabled()
        raise ZeroDivisionError


@pytest.mark.parametrize("enabled", [True, False])
def test_a_pause_leaves_the_collector_as_it_was(enabled: bool) -> None:
    if not enabled:
        gc.disable()
    try:
        with pytest.raises(ZeroDivisionError):
            fail_in_a_pause()
        assert gc.isenabled() == enabled
    finally:
        gc.enable()
