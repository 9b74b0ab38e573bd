"""The position of a training loop, as scripts and other trainers read and set it."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from notebook_accel import Accelerator, GradientAccumulationPlugin
from notebook_accel.errors import ConfigurationError


def test_what_plugin_kwargs_says_holds_for_the_loop() -> None:
    accelerator = Accelerator(cpu=True, gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=2))
    kwargs = accelerator.gradient_state.plugin_kwargs
    assert kwargs.get("sync_each_batch", False) is False
    kwargs["num_steps"] = 3
    kwargs.update({"sync_with_dataloader": False})
    assert accelerator.gradient_accumulation_steps == 3
    assert dict(accelerator.gradient_state.plugin_kwargs) == {
        "num_steps": 3,
        "adjust_scheduler": True,
        "sync_with_dataloader": False,
        "sync_each_batch": False,
    }
    model, loader = accelerator.prepare(nn.Linear(1, 1), DataLoader(TensorDataset(torch.ones(4, 1)), batch_size=1))
    ends = []
    for _ in loader:
        with accelerator.accumulate(model):
            ends.append(accelerator.sync_gradients)
    assert ends == [False, False, True, False]
    del kwargs["num_steps"]
    assert accelerator.gradient_accumulation_steps == 1


def test_plugin_kwargs_takes_only_what_the_plugin_has() -> None:
    kwargs = Accelerator(cpu=True).gradient_state.plugin_kwargs
    with pytest.raises(ConfigurationError, match="plugin_kwargs has no 'sync': choose from num_steps, adjust_sched"):
        kwargs["sync"] = True
    with pytest.raises(ConfigurationError, match="num_steps"):
        kwargs["num_steps"] = 0
    with pytest.raises(KeyError):
        _ = kwargs["sync"]


def test_a_loop_that_counts_batches_itself_says_when_gradients_are_synced() -> None:
    accelerator = Accelerator(cpu=True)
    accelerator.gradient_state._set_sync_gradients(False)  # as in loops copied from transformers
    assert not accelerator.sync_gradients


def test_a_prepared_loader_knows_the_position() -> None:
    accelerator = Accelerator(cpu=True)
    loader = accelerator.prepare(DataLoader(TensorDataset(torch.ones(2, 1))))
    assert [loader.gradient_state.end_of_dataloader for _ in loader] == [False, True]
    assert loader.gradient_state is accelerator.gradient_state
