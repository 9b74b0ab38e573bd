"""The tests of failures that see the same however agents are started: before a merge they run on Ray alone."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster import test_failures


def _at_night(test: Callable[..., Any]) -> Callable[..., Any]:
    """The same test, marked `nightly`."""
    assert isinstance(test, types.FunctionType)
    again = types.FunctionType(test.__code__, test.__globals__, test.__name__, test.__defaults__, test.__closure__)
    again.__doc__ = test.__doc__
    mark: Callable[..., Any] = pytest.mark.nightly(again)
    return mark


test_a_bridge_that_is_killed_is_replaced = _at_night(test_failures.test_a_bridge_that_is_killed_is_replaced)
test_a_killed_rank_is_named_before_those_that_miss_it = _at_night(
    test_failures.test_a_killed_rank_is_named_before_those_that_miss_it
)
test_a_training_ends_with_a_checkpoint_when_a_machine_shuts_down = _at_night(
    test_failures.test_a_training_ends_with_a_checkpoint_when_a_machine_shuts_down
)
test_an_error_names_the_rank_and_its_machine = _at_night(test_failures.test_an_error_names_the_rank_and_its_machine)
