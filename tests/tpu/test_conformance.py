"""The suite of all engines, run against the one of torch_xla on the CPU: one process, a thread for each rank."""

import pytest

from notebook_accel.events import Hello
from notebook_accel.launch import engines
from notebook_accel.launch.engines.contract import Engine
from tests.launch.engines.conftest import ranks_start_light  # noqa: F401
from tests.launch.engines.driver import Group
from tests.launch.engines.test_conformance import *  # noqa: F403

_THREADS = "ranks on the CPU are threads of one process"
_CHIPS = "the end of a rank is told when its process has gone, since only then its chip is free"
_LEFT_OUT = {
    "test_each_rank_has_its_number": f"{_THREADS}, which has one environment",
    "test_one_rank_fails_alone": f"{_THREADS}, and the calls tell ranks apart by the environment",
    "test_ranks_meet": "gloo knows ranks by process",
    "test_a_signal_reaches_one_rank": _THREADS,
    "test_a_crash_leaves_its_stack": _THREADS,
    "test_an_interrupt_between_calls_is_not_heard": f"{_THREADS}, which cannot be stopped one by one",
    "test_an_interrupt_in_a_destructor_is_raised_in_the_function": "what a destructor swallows is lost to a thread",
    "test_a_rank_that_waits_for_one_that_has_ended_is_freed": "gloo knows ranks by process",
    "test_a_signal_makes_a_rank_write_its_stacks": _THREADS,
    "test_the_children_of_a_rank_that_dies_end_while_the_others_go_on": f"{_THREADS}, which die together",
    "test_severing_leaves_the_connections_of_the_users_own_code": "gloo knows ranks by process",
    "test_a_rank_ends_once_its_threads_have": f"{_THREADS}, which ends after the last of them",
    "test_a_kill_is_heeded_by_the_deaf": "only the first thread of a process may choose to be deaf",
    "test_output_is_captured_whoever_writes_it": f"{_THREADS}",
    "test_a_rank_has_the_environment_of_its_spec_and_no_other": f"{_THREADS}",
    "test_a_rank_has_the_threads_that_were_set": "of the fork server alone",
    "test_a_rank_is_a_session_of_its_own_with_nothing_to_read": _THREADS,
    "test_ranks_that_part_end_by_themselves": _CHIPS,
    "test_what_ranks_that_part_have_started_is_ended": _CHIPS,
    "test_the_engine_of_the_system_is_the_default": "of other engines",
}


@pytest.fixture(scope="session", autouse=True)
def warm() -> None:
    """The first start waits for the server to import torch_xla, which no test should."""
    with Group(engines.get("xla")) as group:
        group.wait_for(lambda: group.of(0, Hello), 110)


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.function.__name__ in _LEFT_OUT:
        pytest.skip(_LEFT_OUT[request.function.__name__])
    return engines.get("xla")
