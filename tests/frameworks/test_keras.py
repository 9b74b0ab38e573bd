"""Keras on the ranks: its own bars on the panel, and its models trained by what its backends offer."""

from __future__ import annotations

import pytest

from tests.frameworks.conftest import LONG, Launch
from tests.live_notebook import Notebook

pytestmark = pytest.mark.usefixtures("defined")

TRAIN = """
def model_and_data():
    import keras
    import numpy as np
    inputs = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
    begin = keras.initializers.GlorotUniform(0)  # `keras.utils.set_random_seed` would import TensorFlow, for seconds
    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1, kernel_initializer=begin)])
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse", metrics=["mae"])
    return model, inputs, inputs.sum(1, keepdims=True)

def weights_of(model):
    return [weight for each in model.get_weights() for weight in each.ravel().tolist()]

def alone():
    model, inputs, targets = model_and_data()
    model.fit(inputs, targets, batch_size=16, epochs=3)
    model.evaluate(inputs, targets, batch_size=16)
    model.predict(inputs, batch_size=16)
    model.fit(inputs, targets, batch_size=16, epochs=1, verbose=0)

def with_jax():
    import jax
    jax.distributed.initialize()
    import keras
    parallel = keras.distribution.DataParallel(devices=jax.devices(), auto_shard_dataset=False)
    keras.distribution.set_distribution(parallel)
    model, inputs, targets = model_and_data()
    mine = slice(jax.process_index(), None, jax.process_count())
    model.fit(inputs[mine], targets[mine], batch_size=32 // jax.process_count(), epochs=2, shuffle=False)
    return jax.process_count(), weights_of(model)
"""


def test_its_bars_are_on_the_panel_and_not_in_the_output(launch: Launch) -> None:
    """Long: Keras imports its backend for seconds."""
    told = launch("alone", env={"KERAS_BACKEND": "torch"})
    expected = [["Epoch 3/3", 4, 4, True], ["Evaluation", 4, 4, True], ["Prediction", 4, 4, True]]
    assert told.bars == [expected] * 2
    assert told.metrics == [["loss", "mae"]] * 2
    assert told.output == ""


@pytest.mark.nightly
def test_two_ranks_train_as_one_with_the_whole_batch(launch: Launch) -> None:
    """Long: Keras imports its backend for seconds, in the kernel and in ranks."""
    (first, second) = launch("with_jax", env={"KERAS_BACKEND": "jax"}).values
    assert first == second
    ((size, weights),) = launch("with_jax", env={"KERAS_BACKEND": "jax"}, size=1).values
    assert (first[0], size) == (2, 1)
    assert first[1] == pytest.approx(weights, abs=1e-5)


@pytest.mark.nightly
def test_a_notebook_that_has_keras_launches_with_any_backend(notebook: Notebook, launch: Launch) -> None:
    """Long: the kernel imports one backend, and its rank another."""
    notebook.check("os.environ['KERAS_BACKEND'] = 'torch'\nimport keras", timeout=LONG)
    notebook.check("notebook_launcher(int, num_processes=2)")  # now the server would have it
    ask = "lambda: ('keras' in sys.modules, __import__('keras').backend.backend())"
    assert launch(ask, env={"KERAS_BACKEND": "jax"}, size=1).values == [[False, "jax"]]
