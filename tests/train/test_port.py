"""A training function that was written for Accelerate runs with only its import lines changed, and finds the same."""

import itertools
import textwrap
from typing import Any

import accelerate
import pytest

from notebook_accel import PartialState
from tests.train.conftest import Cases

pytestmark = pytest.mark.early

SCRIPT = """
import os

import torch
from accelerate import Accelerator, DataLoaderConfiguration, DistributedType
from accelerate.utils import (
    DistributedDataParallelKwargs,
    GradientAccumulationPlugin,
    ProjectConfiguration,
    broadcast_object_list,
    find_executable_batch_size,
    gather_object,
    set_seed,
)
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset


def digits():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(330, 64, generator=generator)
    targets = inputs.matmul(torch.rand(64, 10, generator=generator)).argmax(-1)
    return TensorDataset(inputs[:250], targets[:250]), TensorDataset(inputs[250:], targets[250:])


def training_function(folder, mixed_precision):
    accelerator = Accelerator(
        cpu=True,
        mixed_precision=mixed_precision,
        gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=2),
        project_config=ProjectConfiguration(folder, automatic_checkpoint_naming=True, total_limit=2),
        kwargs_handlers=[DistributedDataParallelKwargs(bucket_cap_mb=1)],
        dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True, data_seed=7),
    )
    assert accelerator.distributed_type in (DistributedType.NO, DistributedType.MULTI_CPU)
    set_seed(3)
    with accelerator.main_process_first():
        train, test = digits()

    @find_executable_batch_size(starting_batch_size=16)
    def loop(batch_size):
        accelerator.free_memory()
        model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        train_loader = DataLoader(train, shuffle=True, batch_size=batch_size)
        test_loader = DataLoader(test, batch_size=24)
        scheduler = OneCycleLR(optimizer, max_lr=0.02, epochs=3, steps_per_epoch=len(train_loader))
        model, optimizer, train_loader, test_loader, scheduler = accelerator.prepare(
            model, optimizer, train_loader, test_loader, scheduler
        )
        found = []
        for epoch in range(3):
            model.train()
            for step, (inputs, targets) in enumerate(train_loader):
                with accelerator.accumulate(model):
                    loss = torch.nn.functional.cross_entropy(model(inputs), targets)
                    accelerator.backward(loss)
                    if accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    scheduler.step()
                    optimizer.zero_grad()
            model.eval()
            right, seen = 0, 0
            for inputs, targets in test_loader:
                with torch.no_grad():
                    predictions = model(inputs).argmax(-1)
                predictions, targets = accelerator.gather_for_metrics((predictions, targets))
                right += (predictions == targets).sum().item()
                seen += len(targets)
            mean = accelerator.reduce(loss.detach(), reduction="mean").item()
            found.append((right, seen, mean, scheduler.get_last_lr()[0]))
            accelerator.log({"accuracy": right / seen}, step=epoch)
            accelerator.save_state()
        accelerator.wait_for_everyone()
        kept = sorted(os.listdir(os.path.join(folder, "checkpoints")))
        accelerator.load_state(os.path.join(folder, "checkpoints", kept[0]))
        accelerator.save_model(model, os.path.join(folder, "model"))
        accelerator.wait_for_everyone()
        return found, kept, sorted(os.listdir(os.path.join(folder, "model")))

    found = loop()
    names = gather_object([f"rank {accelerator.process_index}"])
    first = broadcast_object_list([accelerator.process_index])
    accelerator.end_training()
    return found, names, first
"""


IDIOMS = """
import os
from datetime import timedelta

import torch
from accelerate import Accelerator
from accelerate.data_loader import skip_first_batches
from accelerate.local_sgd import LocalSGD
from accelerate.logging import get_logger
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.tracking import GeneralTracker, on_main_process
from accelerate.utils import InitProcessGroupKwargs, gather, gather_object, pad_across_processes, reduce, set_seed
from accelerate.utils.memory import release_memory
from accelerate.utils.operations import send_to_device
from accelerate.utils.other import save
from torch.utils.data import DataLoader, TensorDataset

logger = get_logger(__name__, log_level="INFO")


class Kept(GeneralTracker):
    name = "kept"
    requires_logging_directory = False

    def __init__(self):
        super().__init__()
        self.lines = []

    @property
    def tracker(self):
        return self.lines

    @on_main_process
    def store_init_configuration(self, values):
        self.lines.append(values)

    @on_main_process
    def log(self, values, step=None, **kwargs):
        self.lines.append((step, values, kwargs))


def training_function(folder, mixed_precision):
    accelerator = Accelerator(
        cpu=True,
        mixed_precision=mixed_precision,
        log_with=Kept(),
        kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(seconds=100))],
    )
    logger.info(accelerator.state, main_process_only=False)
    accelerator.init_trackers("project", config={"lr": 0.05}, init_kwargs={"kept": {}})
    rank, found = PartialState().process_index, []
    set_seed(7)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = TensorDataset(torch.randn(22, 3), torch.randn(22, 1))
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=4, shuffle=True))
    with LocalSGD(accelerator=accelerator, model=model, local_sgd_steps=2, enabled=True) as local_sgd:
        for step, batch in enumerate(loader):
            inputs, targets = send_to_device(batch, accelerator.device)
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            local_sgd.step()
            accelerator.log({"loss": accelerator.reduce(loss.detach(), "mean").item()}, step, {"kept": {"more": 1}})
            if loss.item() < 0.5 - 0.1 * rank:
                accelerator.set_trigger()
            if accelerator.check_trigger():
                break
    found.append(accelerator.get_tracker("kept", unwrap=True) if accelerator.is_main_process else None)
    found.append([round(each, 5) for each in accelerator.unwrap_model(model).weight.flatten().tolist()])
    with accelerator.join_uneven_inputs([model], even_batches=False):
        for inputs, _ in loader:
            accelerator.backward(model(inputs).mean())
    found.append([len(accelerator.gather_for_metrics(inputs)) for inputs, _ in skip_first_batches(loader, 1)][:-1])
    with accelerator.no_sync(model):
        optimizer.zero_grad()
        accelerator.backward(model(torch.full((1, 3), 1.0 + rank)).sum())
    found.append(accelerator.unwrap_model(model).weight.grad.tolist())
    with accelerator.split_between_processes({"a": torch.arange(5), "b": list("abcde")}) as part:
        found.append((part["a"].tolist(), gather_object(part["b"])))
    with PartialState().split_between_processes(list(range(7)), apply_padding=True) as part:
        found.append(part)
    own = torch.full((rank + 1, 2), float(rank))
    found.append(gather(pad_across_processes(own, dim=0, pad_index=-1)).tolist())
    found.append([reduce({"x": own[:1]}, how)["x"].tolist() for how in ("sum", "mean", "max")])
    mine = (accelerator.on_main_process, accelerator.on_last_process, accelerator.on_process(process_index=0))
    found.append([decorate(lambda: 1)() for decorate in mine])
    accelerator.save(accelerator.get_state_dict(model), os.path.join(folder, "weights.bin"))
    if rank:
        save(rank, os.path.join(folder, "rank.bin"))  # only rank 0 writes
    accelerator.wait_for_everyone()
    found.append((os.listdir(folder), sorted(torch.load(os.path.join(folder, "weights.bin")))))
    state = AcceleratorState()
    found.append((state.mixed_precision, GradientState().sync_gradients, loader.total_batch_size))
    found.append(accelerator.free_memory(model, optimizer) + release_memory(loader))
    accelerator.end_training()
    return found
"""


def run(source: str, folder: str, mixed_precision: str, is_ours: bool) -> Any:
    """Runs the script's function on this rank."""
    if not is_ours:
        accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
        accelerate.state.GradientState._reset_state()
        PartialState()  # joins a group of its own; Accelerate would join that of the script before
    names: dict[str, Any] = {"__name__": "script"}
    exec(compile(source, "script", "exec"), names)
    return names["training_function"](folder, mixed_precision)


def ported(source: str) -> str:
    """One word for another, in the import lines."""
    lines = source.splitlines()
    return "\n".join(
        line.replace("accelerate", "notebook_accel", 1) if line.startswith("from accelerate") else line
        for line in lines
    )


SCRIPTS = {"IDIOMS": IDIOMS, "SCRIPT": SCRIPT}
RUNS = [("IDIOMS", "no"), ("SCRIPT", "no"), ("SCRIPT", "bf16")]
"""Scripts and precisions. The first one also joins the group, with its own arguments."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[bool, int], Cases]:
    """What Accelerate and we find in each run, by whether it is ours and the number of ranks."""
    found = {}
    for is_ours, size in itertools.product((False, True), (1, 2)):
        cases = {}
        for script, precision in RUNS:
            source = textwrap.dedent(SCRIPTS[script])
            folder = str(tmp_path_factory.mktemp("run"))
            cases[script, precision] = (run, ported(source) if is_ours else source, folder, precision, is_ours)
        found[is_ours, size] = Cases(cases, size=size)
    return found


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_port_says_one_name_for_another(script: str) -> None:
    source = textwrap.dedent(SCRIPTS[script])
    assert ported(source).count("notebook_accel") == source.count("from accelerate") == source.count("accelerate")


@pytest.mark.parametrize(("script", "mixed_precision"), RUNS)
@pytest.mark.parametrize("size", [1, 2])
def test_only_the_import_lines_change(
    size: int, script: str, mixed_precision: str, runs: dict[tuple[bool, int], Cases]
) -> None:
    ours, theirs = (runs[is_ours, size][script, mixed_precision] for is_ours in (True, False))
    assert len(ours) == size
    assert ours == theirs
