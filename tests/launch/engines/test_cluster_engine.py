"""Clusters that can't be reached from here."""

import importlib.util
import shutil

import pytest

from notebook_accel.errors import LaunchError
from notebook_accel.launch.engines.cluster_engine import ClusterEngine


@pytest.mark.parametrize(
    ("address", "is_there", "said"),
    [
        ("auto", importlib.util.find_spec("ray") is not None, 'pip install "notebook-accel\\[cluster\\]"'),
        ("slurm", shutil.which("srun") is not None, "there is no srun here"),
    ],
)
def test_what_is_missing_is_named(address: str, is_there: bool, said: str) -> None:
    if is_there:
        pytest.skip("it is there")
    engine = ClusterEngine(address)
    try:
        with pytest.raises(LaunchError, match=said):
            engine.nodes()
    finally:
        engine.close()
