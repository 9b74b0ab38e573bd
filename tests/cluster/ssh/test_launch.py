"""What a Ray cluster does, hosts over ssh do too."""

from tests.cluster.test_launch import *  # noqa: F403

del test_a_cluster_is_found_in_other_ways  # type: ignore[name-defined]  # noqa: F821  # of Ray alone
