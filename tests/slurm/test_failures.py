"""What breaks on a Ray cluster breaks on Slurm's machines too, and ends alike. The rest happens within an agent."""

from tests.cluster.test_failures import (  # noqa: F401
    test_a_bridge_that_is_killed_is_replaced,
    test_a_kernel_that_is_killed_leaves_nothing_anywhere,
    test_a_killed_rank_is_named_before_those_that_miss_it,
    test_a_machine_that_is_gone_is_named_and_the_next_launch_takes_another,
    test_an_agent_that_is_killed_takes_its_ranks_with_it,
    test_an_error_names_the_rank_and_its_machine,
    test_an_interrupt_ends_the_ranks_and_what_they_have_started,
)
