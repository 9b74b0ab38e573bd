"""The example of two machines, on two nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.conftest import Cluster
from tests.documents.test_examples import execute


@pytest.mark.nightly
def test_the_example_runs(cluster: Cluster, tmp_path: Path):
    """All of its cells, whose kernel waits for agents of its own."""
    said = execute("08_two_machines", tmp_path, timeout=110)
    for words in (
        "'RANK': 3, 'LOCAL_RANK': 1, 'GROUP_RANK': 1",
        "% of the new digits are read right",
        "[0, 10, 20, 30]",
        f"rank 2 of 4 (on {cluster.machines[1]}) raised ValueError: no data on this machine",
    ):
        assert words in said, said
    assert "Warning" not in said
