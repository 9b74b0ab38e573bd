"""A program: a small training with one choice for each thing that may matter, which prints itself as a script.

The script is what the ranks run, with `notebook_accel` or, with only its imports changed, with Accelerate.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from textwrap import dedent, indent

OURS, ACCELERATES = "notebook_accel", "accelerate"
FEATURES = 4


@dataclass(frozen=True, kw_only=True)
class Program:
    """What a user may choose. The defaults are those of the simplest program, towards which a failure shrinks."""

    ranks: int = 1
    samples: int = 1
    batch_size: int = 1
    drop_last: bool = False
    order: str = "in order"
    """A key of `ORDERS`."""
    split_batches: bool = False
    even_batches: bool = True
    dispatch_batches: bool | None = None
    epochs: int = 1
    accumulation: int = 1
    optimizer: str = "sgd"
    """A key of `OPTIMIZERS`."""
    scheduler: str = ""
    """A key of `SCHEDULERS`."""
    clip: str = ""
    """A key of `CLIPS`."""

    def __str__(self) -> str:
        changed = [each.name for each in fields(self) if getattr(self, each.name) != each.default]
        return f"Program({', '.join(f'{name}={getattr(self, name)!r}' for name in changed)})"

    @property
    def is_joined(self) -> bool:
        """Whether ranks may run out of batches before others, which collectives in the loop would not survive."""
        return not self.even_batches

    def script(self, library: str = OURS) -> str:
        """The source of a script that trains so, and whose `train()` returns what it has seen."""
        return _script(self, library)


ORDERS = {
    "in order": "",
    "shuffled": "shuffle=True",
    "shuffled by a generator": "shuffle=True, generator=torch.Generator().manual_seed(3)",
    "seedable": "shuffle=True",
}
"""How the samples are ordered: by name, the arguments of the loader."""
OPTIMIZERS = {
    "sgd": "torch.optim.SGD(model.parameters(), lr=0.1)",
    "momentum": "torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)",
    "adamw": "torch.optim.AdamW(model.parameters(), lr=0.01)",
}
SCHEDULERS = {
    "step": "torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.5)",
    "exponential": "torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)",
    "cosine": "torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)",
    "linear": "torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=7)",
    "one cycle": "torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=max(2, total_steps))",
    "lambda": "torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))",
}
CLIPS = {
    "norm": "accelerator.clip_grad_norm_(model.parameters(), 0.1)",
    "value": "accelerator.clip_grad_value_(model.parameters(), 0.01)",
}

_HEAD = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from {library} import {names}


class Samples(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        inputs = torch.sin((index + 1) * torch.arange(1, {features} + 1, dtype=torch.float64))
        return {{"index": index, "inputs": inputs, "target": torch.cos(inputs.sum()) + 1}}


def make_loader():
    return DataLoader({loader})


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear({features}, 6), nn.Tanh(), nn.Linear(6, 1)).double()


def make_optimizer(model):
    return {optimizer}
"""
_SCHEDULER = """

def make_scheduler(optimizer, total_steps):
    return {scheduler}
"""


def _script(program: Program, library: str) -> str:
    return (
        "\n".join(
            part.strip("\n") + "\n\n"
            for part in (_definitions(program, library), _train(program, library), _main(program, library))
        ).rstrip()
        + "\n"
    )


def _definitions(program: Program, library: str) -> str:
    loader = [f"Samples({program.samples})", f"batch_size={program.batch_size}"]
    loader += ["drop_last=True"] * program.drop_last
    loader += [ORDERS[program.order]] * bool(ORDERS[program.order])
    names = ["Accelerator", *["DataLoaderConfiguration"] * bool(_loading(program)), "notebook_launcher"]
    text = _HEAD.format(
        library=library,
        names=", ".join(names),
        features=FEATURES,
        loader=", ".join(loader),
        optimizer=OPTIMIZERS[program.optimizer],
    )
    if program.scheduler:
        text += _SCHEDULER.format(scheduler=SCHEDULERS[program.scheduler])
    return text


def _loading(program: Program) -> str:
    """The arguments of the `DataLoaderConfiguration`."""
    options: dict[str, object] = {}
    if program.split_batches:
        options["split_batches"] = True
    if not program.even_batches:
        options["even_batches"] = False
    if program.dispatch_batches is not None:
        options["dispatch_batches"] = program.dispatch_batches
    if program.order == "seedable":
        options |= {"use_seedable_sampler": True, "data_seed": 5}
    return ", ".join(f"{name}={value}" for name, value in options.items())


def _train(program: Program, library: str) -> str:
    options = ["cpu=True"] * (library == ACCELERATES)
    options += [f"gradient_accumulation_steps={program.accumulation}"] * (program.accumulation > 1)
    options += [f"dataloader_config=DataLoaderConfiguration({_loading(program)})"] * bool(_loading(program))
    prepared = ["model", "optimizer", "loader", *["scheduler"] * bool(program.scheduler)]
    lines = [f"accelerator = Accelerator({', '.join(options)})"]
    lines += ["model = make_model()", "optimizer = make_optimizer(model)", "loader = make_loader()"]
    if program.scheduler:
        lines += [f"scheduler = make_scheduler(optimizer, {program.epochs} * len(loader))"]
    lines += [f"{', '.join(prepared)} = accelerator.prepare({', '.join(prepared)})"]
    lines += ["seen, rates, losses = [], [], []"]
    lines += [f"for _ in range({program.epochs}):", *_indented(_epoch(program))]
    lines += ["weights = {name: each.tolist() for name, each in accelerator.get_state_dict(model).items()}"]
    lines += ['return {"seen": seen, "rates": rates, "losses": losses, "weights": weights}']
    return "\n".join(["def train():", *_indented(lines)])


def _epoch(program: Program) -> list[str]:
    lines = ["seen.append([])", "losses.append([])"]
    loop = ["for batch in loader:", *_indented(_step(program))]
    if program.is_joined:
        loop = ["with accelerator.join_uneven_inputs([model]):", *_indented(loop)]
    return lines + loop


def _step(program: Program) -> list[str]:
    inner = [
        'errors = (model(batch["inputs"])[:, 0] - batch["target"]).square()',
        "accelerator.backward(errors.mean())",
    ]
    if program.clip:
        inner += ["if accelerator.sync_gradients:", f"    {CLIPS[program.clip]}"]
    inner += ["optimizer.step()", *["scheduler.step()"] * bool(program.scheduler), "optimizer.zero_grad()"]
    lines = ['seen[-1].append(batch["index"].tolist())']
    lines += ["with accelerator.accumulate(model):", *_indented(inner)]
    lines += ['rates.append(optimizer.param_groups[0]["lr"])']
    if not program.is_joined:
        lines += ['gathered = accelerator.gather_for_metrics({"index": batch["index"], "errors": errors.detach()})']
        lines += ['losses[-1] += zip(gathered["index"].tolist(), gathered["errors"].tolist())']
    return lines


def _main(program: Program, library: str) -> str:
    device = ', device="cpu"' if library == OURS else ""
    return dedent(f"""
        if __name__ == "__main__":
            print(notebook_launcher(train, num_processes={program.ranks}{device}))
    """)


def _indented(lines: list[str]) -> list[str]:
    return [indent(line, "    ") for line in lines]
