"""TensorFlow on the ranks: `MultiWorkerMirroredStrategy` finds its workers in `TF_CONFIG`."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frameworks.conftest import LONG, Launch
from tests.live_notebook import Cell, Notebook

pytestmark = pytest.mark.usefixtures("defined")

TRAIN = """
from tqdm import tqdm

def train(share, fails=False):
    import numpy as np
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rank = strategy.cluster_resolver.task_id or 0
    inputs = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
    own = inputs[rank * share : (rank + 1) * share]
    batches = tf.data.Dataset.from_tensors((own, own.sum(1, keepdims=True))).repeat(4)
    with strategy.scope():
        weights = tf.Variable(tf.zeros((8, 1)))

    @tf.function
    def step(batch):
        def replica(batch):
            inputs, targets = batch
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((inputs @ weights - targets) ** 2)
            gradient = tf.distribute.get_replica_context().all_reduce("mean", tape.gradient(loss, weights))
            weights.assign_sub(0.1 * gradient)
        strategy.run(replica, args=(batch,))

    data = strategy.distribute_datasets_from_function(lambda context: batches)
    for index, batch in enumerate(tqdm(data, desc="steps", total=4)):
        if fails and index == 2 and rank == 1:
            raise ValueError("no third step")
        step(batch)
    return strategy.num_replicas_in_sync, rank, weights.numpy().ravel().tolist()
"""
FAILING = "(32, True)"
"""The arguments of a launch that fails."""


def test_a_rank_that_fails_is_the_error(failed: Cell) -> None:
    """Long: kernel and ranks import what they run."""
    assert failed.error == "RankError"
    assert failed.error_text.startswith("rank 1 of 2 raised ValueError: no third step"), failed.error_text


def by_hand() -> list[float]:
    """The weights after four steps with the whole batch."""
    inputs = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
    weights = np.zeros(8)
    for _ in range(4):
        weights -= 0.1 * 2 / len(inputs) * inputs.T @ (inputs @ weights - inputs.sum(1))
    return list(map(float, weights))


@pytest.mark.usefixtures("failed")
def test_two_ranks_of_the_next_launch_train_as_one_with_the_whole_batch(launch: Launch) -> None:
    """Long: each rank imports TensorFlow, which takes ten seconds."""
    both = launch("train, 32")
    (size, rank, weights), again = both.values
    assert (size, rank) == (2, 0)
    assert again == [2, 1, weights]
    assert weights == pytest.approx(by_hand(), abs=1e-5)
    assert both.bars == [[["steps", 4, 4, True]]] * 2


@pytest.mark.nightly
def test_a_notebook_that_runs_tensorflow_itself_launches_as_ever(notebook: Notebook, launch: Launch) -> None:
    """Long: the kernel imports TensorFlow. Its ranks find no trace of it; that such ranks train is tested above."""
    notebook.check("import tensorflow as tf\ntf.reduce_sum(tf.ones(3))", timeout=LONG)
    notebook.check("notebook_launcher(int, num_processes=2)")  # now the server would have it
    assert launch("lambda: 'tensorflow' in sys.modules").values == [False, False]
