"""What breaks on a Ray cluster breaks on hosts over ssh too, and ends alike."""

from tests.cluster.test_failures import *  # noqa: F403
