"""The part of `notebook-accel test` that runs in each rank. Only the ranks import torch."""

from __future__ import annotations

import time
from typing import Any


def check(folder: str) -> dict[str, Any]:
    """Tries the operations that training needs; returns the results by name.

    Args:
        folder: Where a checkpoint may be written; the same on all ranks.
    """
    import torch

    from notebook_accel import Accelerator, set_seed

    set_seed(0)
    accelerator = Accelerator()
    found = {
        "device": str(accelerator.device),
        "backend": str(accelerator.state.backend),
        "collectives": _collectives(accelerator),
        "precision": _precision(torch, accelerator.device),
        "checkpoint": _checkpoint(accelerator, folder),
        "bandwidth": _bandwidth(accelerator),
    }
    accelerator.end_training()
    return found


def _collectives(accelerator: Any) -> str:
    """A description of wrong results; empty if all are right."""
    import torch

    rank, size = accelerator.process_index, accelerator.num_processes
    own = torch.full((3,), float(rank), device=accelerator.device)
    if not torch.equal(accelerator.reduce(own, "sum").cpu(), torch.full((3,), size * (size - 1) / 2)):
        return "reduce gives a wrong sum"
    if accelerator.gather(own).cpu().tolist() != [float(each) for each in range(size) for _ in range(3)]:
        return "gather gives wrong values"
    accelerator.wait_for_everyone()
    return ""


def _precision(torch: Any, device: Any) -> dict[str, float]:
    """For each 16-bit type, how far a matrix product deviates from float32."""
    left, right = torch.randn(2, 256, 256, device=device)
    exact = left @ right
    errors = {}
    for dtype in (torch.bfloat16, torch.float16):
        result = (left.to(dtype) @ right.to(dtype)).float()
        errors[str(dtype).removeprefix("torch.")] = float((result - exact).abs().max() / exact.abs().max())
    return errors


def _checkpoint(accelerator: Any, folder: str) -> str:
    """Saves, trains on, and loads; returns a description of any difference, empty if there is none."""
    import torch

    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    batch = torch.ones(8, 64, device=accelerator.device)

    def step() -> float:
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        return float(loss.detach())

    step()
    accelerator.save_state(folder)
    first = step()
    accelerator.load_state(folder)
    return "" if step() == first else "a step after loading differs from the step after saving"


def _bandwidth(accelerator: Any) -> float:
    """Measures an all-reduce of a large tensor, in bytes a second."""
    import torch

    tensor = torch.ones(4 * 2**20, device=accelerator.device)
    accelerator.reduce(tensor)
    accelerator.wait_for_everyone()
    began = time.perf_counter()
    float(accelerator.reduce(tensor)[0])
    return tensor.nbytes / (time.perf_counter() - began)
