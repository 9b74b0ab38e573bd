"""JAX on the ranks: `jax.distributed` knows the launch, and the server never has JAX in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.frameworks.conftest import LONG, Launch
from tests.live_notebook import Cell, Notebook

pytestmark = pytest.mark.usefixtures("defined")

TRAIN = """
from tqdm import trange

def listening():
    import psutil
    found = psutil.Process().net_connections("inet")
    return sorted({each.laddr.ip for each in found if each.status == psutil.CONN_LISTEN})

def train(share, fails=False):
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    jax.distributed.initialize()
    mesh = Mesh(np.array(jax.devices()), ("data",))
    split, whole = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
    inputs = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
    own = inputs[jax.process_index() * share : (jax.process_index() + 1) * share]
    batch = jax.make_array_from_process_local_data(split, own)
    targets = jax.make_array_from_process_local_data(split, own.sum(1, keepdims=True))

    @jax.jit
    def step(weights, batch, targets):
        gradient = jax.grad(lambda weights: jnp.mean((batch @ weights - targets) ** 2))(weights)
        return weights - 0.1 * gradient

    weights = jax.device_put(np.zeros((8, 1), "float32"), whole)
    for index in trange(4, desc="steps"):
        if fails and index == 2 and jax.process_index() == 1:
            raise ValueError("no third step")
        weights = jax.block_until_ready(step(weights, batch, targets))
    own = np.asarray(weights.addressable_data(0)).ravel().tolist()
    return jax.process_count(), jax.device_count(), own, listening()
"""
FAILING = "(32, True)"
"""The arguments of a launch that fails."""


def test_a_rank_that_fails_is_the_error(failed: Cell) -> None:
    """Long: kernel and ranks import what they run."""
    assert failed.error == "RankError"
    assert failed.error_text.startswith("rank 1 of 2 raised ValueError: no third step"), failed.error_text


@pytest.mark.usefixtures("failed")
def test_two_ranks_of_the_next_launch_train_as_one_with_the_whole_batch(launch: Launch) -> None:
    both = launch("train, 32")
    (processes, devices, weights, addresses), again = both.values
    assert (processes, devices) == (2, 2)
    assert again[2] == weights
    ((_, _, whole, _),) = launch("train, 64", size=1).values
    assert weights == pytest.approx(whole, abs=1e-5)
    assert both.bars == [[["steps", 4, 4, True]]] * 2
    assert {address.removeprefix("::ffff:") for address in addresses + again[3]} == {"127.0.0.1"}


def test_a_notebook_that_runs_jax_itself_launches_as_ever(notebook: Notebook, launch: Launch) -> None:
    notebook.check("import jax\njax.numpy.ones(3).sum()", timeout=LONG)
    notebook.check("notebook_launcher(int, num_processes=2)")  # now the server would have it
    found = launch("lambda: ('jax' in sys.modules, *train(32)[:2])").values
    assert found == [[False, 2, 2]] * 2


def test_arguments_of_the_users_are_left_alone(notebook: Notebook, launch: Launch) -> None:
    notebook.check("""
    def join():
        import jax, socket
        where = f"127.0.0.1:{os.environ['JAX_COORDINATOR_PORT']}"
        jax.distributed.initialize(where, 2, 1 - int(os.environ["RANK"]), coordinator_bind_address=where)
        return jax.process_index(), os.environ.get("JAX_COORDINATOR_BIND_ADDRESS")
    """)
    assert launch("join").values == [[1, None], [0, None]]


SCRIPT = """
import os
import jax
jax.distributed.initialize()
os.write(1, f"{jax.process_index()} of {jax.process_count()} on {jax.default_backend()}\\n".encode())
"""


def test_a_script_finds_the_ranks_that_the_command_starts(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "notebook_accel", "launch", "--cpu", "--num_processes", "2", tmp_path / "train.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG)
    assert sorted(done.stdout.splitlines()) == ["0 of 2 on cpu", "1 of 2 on cpu"], done.stderr
