"""Stacks of other threads, read while these threads run."""

import gc
import linecache
import sys
import threading
from collections.abc import Callable

import pytest

from notebook_accel.launch.rank.stacks import stack_sampler


def places_of_collections(work: Callable[[], object]) -> list[str]:
    """The source lines at which Python has begun to collect garbage during a call, where it does so whenever it may."""
    places = []

    def on_collection(phase: str, info: object) -> None:
        caller = sys._getframe(1)
        if phase == "start":
            places.append(linecache.getline(caller.f_code.co_filename, caller.f_lineno).strip())

    before = gc.get_threshold()
    gc.callbacks.append(on_collection)
    gc.set_threshold(1)
    try:
        work()
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(on_collection)
    return places


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="garbage is collected between two instructions only")
def test_no_garbage_is_collected_while_frames_are_read() -> None:
    """The finalizers would let the other thread run on, and so free what is being read: Python crashes."""
    waiting = threading.Event()
    thread = threading.Thread(target=waiting.wait)
    thread.start()

    def read() -> None:
        for _ in range(100):
            kept = [[] for _ in range(10)]
            stack_sampler.of(stack_sampler.current_frames()[thread.ident])  # type: ignore[index]
            del kept

    places = places_of_collections(read)
    waiting.set()
    thread.join()
    assert any("[[]" in place for place in places)
    assert not [place for place in places if "_current_frames()" in place or "f_back" in place]
    assert gc.isenabled()


def test_collection_stays_off_where_the_user_has_turned_it_off() -> None:
    gc.disable()
    try:
        assert stack_sampler.current_frames()
        assert not gc.isenabled()
    finally:
        gc.enable()
