"""What a Ray cluster does, hosts over ssh do too. Here is what differs by how agents are started."""

from tests.cluster.test_launch import (  # noqa: F401
    test_a_job_leaves_the_notebook_free_and_tells_where_its_ranks_are,
    test_a_large_capture_and_a_large_value_travel,
    test_ranks_are_spread_over_the_machines,
    test_ranks_of_two_machines_form_one_group,
    test_the_environment_is_the_notebooks_but_for_what_is_the_machines,
    test_the_users_own_modules_and_folder_are_there_as_they_are_now,
)
