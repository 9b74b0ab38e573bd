"""What breaks on a Ray cluster breaks on Slurm's machines too, and ends alike."""

from tests.cluster.test_failures import *  # noqa: F403
