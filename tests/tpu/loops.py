"""Training that tests run on ranks, and by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SAMPLES, FEATURES, BATCH = 64, 6, 16


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(
        torch.randn(SAMPLES, FEATURES, generator=generator), torch.randn(SAMPLES, 1, generator=generator)
    )


def model() -> nn.Module:
    """The same whatever other threads draw from torch's own generator."""
    found = nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, 1))
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.uniform_(-0.4, 0.4, generator=generator)
    return found


def by_hand(*, epochs: int = 2, steps: int = 1, clip: float | None = None) -> tuple[list[float], dict[str, Any]]:
    """Plain torch on the CPU, with whole batches."""
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    losses = []
    for _ in range(epochs):
        for number, (inputs, targets) in enumerate(DataLoader(data(), batch_size=BATCH), 1):
            loss = nn.functional.mse_loss(net(inputs), targets)
            (loss / steps).backward()
            losses.append(loss.item())
            if number % steps == 0:
                if clip is not None:
                    nn.utils.clip_grad_norm_(net.parameters(), clip)
                optimizer.step()
                optimizer.zero_grad()
    return losses, net.state_dict()


def train(
    *, batch: int = BATCH, epochs: int = 2, steps: int = 1, clip: float | None = None, precision: str = "no"
) -> tuple[list[float], dict[str, Any], dict[str, Any]]:
    """The same with an `Accelerator`; losses are those of the whole batch."""
    from notebook_accel import Accelerator

    accelerator = Accelerator(gradient_accumulation_steps=steps, mixed_precision=precision)
    net = model()
    if accelerator.process_index:
        with torch.no_grad():  # which `prepare` makes equal
            for parameter in net.parameters():
                parameter.add_(1.0)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    net, optimizer, loader = accelerator.prepare(net, optimizer, DataLoader(data(), batch_size=batch))
    losses = []
    for _ in range(epochs):
        for inputs, targets in loader:
            with accelerator.accumulate(net):
                loss = nn.functional.mse_loss(net(inputs), targets)
                accelerator.backward(loss)
                if clip is not None and accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(net.parameters(), clip)
                optimizer.step()
                optimizer.zero_grad()
            losses.append(accelerator.reduce(loss.detach(), "mean").item())
    about = {
        "device": str(accelerator.device.type),
        "type": accelerator.distributed_type.value,
        "rank": (accelerator.process_index, accelerator.num_processes, accelerator.local_process_index),
        "batch": tuple(inputs.shape),
    }
    return losses, accelerator.get_state_dict(net), about


def train_in_host_collectives(**options: Any) -> Any:
    from tests.tpu import host_collectives

    host_collectives.install()
    return train(**options)


def exchange() -> Any:
    """All that ranks exchange."""
    from notebook_accel import Accelerator
    from tests.tpu import host_collectives

    host_collectives.install()
    accelerator = Accelerator()
    rank, device = accelerator.process_index, accelerator.device
    own = torch.tensor([rank, rank + 10.0], device=device)
    accelerator.print("only once")
    accelerator.wait_for_everyone()
    found = {
        "gather": accelerator.gather(own).tolist(),
        "scalar": accelerator.gather(torch.tensor(float(rank), device=device)).tolist(),
        "tree": {name: value.tolist() for name, value in accelerator.gather({"a": own[:1]}).items()},
        "sum": accelerator.reduce(own, "sum").tolist(),
        "mean": accelerator.reduce(own, "mean").tolist(),
        "max": accelerator.reduce(own, "max").tolist(),
        "host": accelerator.gather(torch.tensor([rank])).device.type,
        "padded": accelerator.pad_across_processes(torch.ones(rank + 1, device=device)).shape[0],
        "main": accelerator.is_main_process,
    }
    if rank == 1:
        accelerator.set_trigger()
    found["trigger"] = accelerator.check_trigger()
    rows = []
    loader = accelerator.prepare(DataLoader(list(range(10)), batch_size=2))
    for batch in loader:
        rows += accelerator.gather_for_metrics(batch).tolist()
    found["rows"] = rows
    with accelerator.split_between_processes(list(range(5))) as share:
        found["objects"] = accelerator.gather_for_metrics(share, use_gather_object=True)
    return found


def save_and_go_on(folder: str) -> Any:
    """Trains, saves, goes on; then goes back and goes on again."""
    from notebook_accel import Accelerator

    accelerator = Accelerator()
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    net, optimizer, loader = accelerator.prepare(net, optimizer, DataLoader(data(), batch_size=BATCH, shuffle=True))

    def epoch() -> list[float]:
        losses = []
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(net(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses

    epoch()
    accelerator.save_state(folder)
    first = epoch()
    accelerator.load_state(folder)
    return first, epoch(), sorted(path.name for path in Path(folder).iterdir())


def count_graphs(by: str, batches: int = 100) -> dict[str, int]:
    """How often XLA compiles in so many steps."""
    import torch_xla
    import torch_xla.core.xla_model as xm
    import torch_xla.debug.metrics as metrics
    from torch_xla.distributed.parallel_loader import MpDeviceLoader

    from notebook_accel import Accelerator

    dataset = TensorDataset(torch.randn(batches * 4, FEATURES), torch.randn(batches * 4, 1))
    loader = DataLoader(dataset, batch_size=4)
    net = model()
    if by == "hand":
        net = net.to(torch_xla.device())
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        loader = MpDeviceLoader(loader, torch_xla.device())
        torch_xla.sync()
        backward = torch.Tensor.backward
    else:
        accelerator = Accelerator()
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
        backward = accelerator.backward
    metrics.clear_all()
    for inputs, targets in loader:
        optimizer.zero_grad()
        backward(nn.functional.mse_loss(net(inputs), targets))
        if by == "hand":
            xm.optimizer_step(optimizer)
        else:
            optimizer.step()
    torch_xla.sync()
    torch_xla._XLAC._xla_wait_device_ops(devices=[])
    compiled, executed = metrics.metric_data("CompileTime"), metrics.metric_data("ExecuteTime")
    return {"compiled": compiled[0] if compiled else 0, "executed": executed[0] if executed else 0}
