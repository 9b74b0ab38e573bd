"""Not run, but read by mypy: names must have types, also in modules that are made when the package is imported."""

from __future__ import annotations

import torch
from torch import nn
from typing_extensions import assert_type

import notebook_accel
import notebook_accel as accelerate
import notebook_accel.utils.operations as operations
from notebook_accel import Accelerator, Job, notebook_launcher
from notebook_accel.logging import get_logger
from notebook_accel.state import PartialState
from notebook_accel.utils import WEIGHTS_NAME, set_seed
from notebook_accel.utils.dataclasses import DistributedType


def train(accelerator: Accelerator, state: PartialState) -> torch.device:
    set_seed(0)
    get_logger(__name__).info(WEIGHTS_NAME)
    assert_type(accelerator.distributed_type, DistributedType)
    assert_type(accelerator.num_processes, int)
    return state.device


def prepared(accelerator: Accelerator, model: nn.Linear, optimizer: torch.optim.AdamW) -> None:
    assert_type(accelerator.prepare(model, optimizer), tuple[nn.Linear, torch.optim.AdamW])
    one = accelerator.prepare(model)
    assert_type(accelerator.unwrap_model(one), nn.Linear)
    assert_type(accelerator.gather_for_metrics((torch.ones(1), 1)), tuple[torch.Tensor, int])


def attributes() -> None:
    accelerate.utils.set_seed(0)
    assert_type(accelerate.utils.operations.find_device([]), torch.device | None)
    assert_type(accelerate.utils.is_torch_version(">=", "2.6"), bool)
    assert_type(accelerate.state.is_initialized(), bool)
    assert_type(operations.find_batch_size([]), int)
    accelerate.inference  # type: ignore[attr-defined]  # noqa: B018  # all its names are refused


def launch(shell: notebook_accel.Accelerator) -> None:
    job: Job = notebook_launcher(train, (shell,), block=False)
    assert_type(job.wait(), bool)
    notebook_accel.no_such_name  # type: ignore[attr-defined]  # noqa: B018
