"""A program: a small training with one choice for each thing that may matter, which prints itself as a script.

The script is what the ranks run, with `notebook_accel` or, with only its imports changed, with Accelerate.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

OURS, ACCELERATES = "notebook_accel", "accelerate"


@dataclass(frozen=True, kw_only=True)
class Program:
    """What a user may choose. The defaults are those of the simplest program, towards which a failure shrinks."""

    ranks: int = 1
    strategy: str = "ddp"
    """A key of `STRATEGIES`."""
    data: str = "map"
    """`map`: a dataset with indices; `stream`: an iterable one; `sized stream`: one with a length."""
    samples: int = 1
    batch_size: int = 1
    drop_last: bool = False
    order: str = "in order"
    """A key of `ORDERS`."""
    workers: int = 0
    split_batches: bool = False
    even_batches: bool = True
    dispatch_batches: bool | None = None
    epochs: int = 1
    accumulation: int = 1
    forces_last: bool = True
    """Whether the last batch of an epoch always ends in a step."""
    syncs_each: bool = False
    """Whether gradients are averaged after each batch, although they accumulate."""
    nested: bool = False
    """Whether a batch has two backward passes, of which the first is under `no_sync`."""
    local_steps: int = 0
    """After how many steps `LocalSGD` averages the weights; 0 without it."""
    precision: str = "no"
    model: str = "plain"
    """A key of `MODELS`."""
    models: int = 1
    """How many models learn from each batch."""
    optimizer: str = "sgd"
    """A key of `OPTIMIZERS`."""
    scheduler: str = ""
    """A key of `SCHEDULERS`."""
    schedules: str = "steps"
    """When the scheduler steps: with `steps`, after `epochs`, or after each batch, `alone`."""
    clip: str = ""
    """A key of `CLIPS`."""
    reduces: str = ""
    """How the mean errors of the ranks are reduced, if they are."""
    metrics: str = "dict"
    """A key of `METRICS`."""
    evaluated: int = 0
    """How many samples another loader has, which is read after each epoch."""
    evaluates_within: bool = False
    """Whether that loader is read after each batch instead."""
    stops: tuple[int, int] | None = None
    """A rank, and the batch of the first epoch after which it triggers the end of the epoch."""
    saves: tuple[int, int] | None = None
    """The epoch, and the batch in it after which a checkpoint is saved, from which another training continues."""
    resuming_ranks: int = 1
    """How many ranks that one has."""
    is_stateful: bool = False
    """Whether the loader itself continues where it was saved."""
    turns: int = 0
    """How many samples a second loader has, which trains the models in each epoch after the first one."""

    def __str__(self) -> str:
        changed = [each.name for each in fields(self) if getattr(self, each.name) != each.default]
        return f"Program({', '.join(f'{name}={getattr(self, name)!r}' for name in changed)})"

    @property
    def sharing(self) -> int:
        """How many ranks get the same samples."""
        return STRATEGIES[self.strategy].sharing

    @property
    def shares(self) -> int:
        """Into how many shares the samples are divided."""
        return self.ranks // self.sharing

    @property
    def is_stream(self) -> bool:
        return "stream" in self.data

    @property
    def dispatches(self) -> bool:
        """Whether rank 0 reads for all: "the default for an `IterableDataset`"."""
        return self.is_stream if self.dispatch_batches is None else self.dispatch_batches

    @property
    def is_joined(self) -> bool:
        """Whether ranks may run out of batches before others, which collectives in the loop would not survive."""
        return not self.even_batches

    @property
    def is_ragged(self) -> bool:
        """Whether batches of one round may have different sizes."""
        return self.order == "own batches"

    @property
    def total_steps(self) -> int:
        """What a user computes for a schedule: the batches that the loader has before it is prepared."""
        size = 1 if self.is_ragged else self.batch_size
        drawn = self.samples + (self.order == "weighted")
        return max(2, self.epochs * (-(-drawn // size) + -(-self.turns // size)))

    def script(self, library: str = OURS) -> str:
        """The source of a script that trains so, and whose `train()` returns what it has seen."""
        parts = [_imports(self, library), _sample(self), _samples(self), *_samplers(self), _makers(self)]
        parts += [_train(self, library), _main(self, library)]
        return "\n\n\n".join("\n".join(part).strip("\n") for part in parts) + "\n"


@dataclass(frozen=True)
class Kind:
    """How ranks share the work."""

    options: str = ""
    """The arguments of the `Accelerator`."""
    names: tuple[str, ...] = ()
    """What is imported for them."""
    ranks: tuple[int, ...] = (1, 2, 3, 4)
    sharing: int = 1
    """How many of the ranks get the same samples."""
    wear: int = 1
    """How worn ranks are afterwards; see `Group.run`."""


def _mesh(**sizes: int) -> Kind:
    """Four ranks, in so many dimensions."""
    handler = 'tp_handler=TorchTensorParallelConfig(plan={"0": "colwise", "2": "rowwise"})'
    splits = "tp_size" in sizes
    options = ", ".join([*(f"{name}={size}" for name, size in sizes.items()), *[handler] * splits])
    return Kind(
        f"parallelism_config=ParallelismConfig({options})",
        ("ParallelismConfig", *["TorchTensorParallelConfig"] * splits),
        (4,),
        2 if splits else 1,
        10,
    )


STRATEGIES = {
    "ddp": Kind(),
    "fsdp": Kind("fsdp_plugin=FullyShardedDataParallelPlugin()", ("FullyShardedDataParallelPlugin",)),
    "hybrid": _mesh(dp_replicate_size=2, dp_shard_size=2),
    "tensor": Kind(
        'torch_tp_plugin=TorchTensorParallelPlugin(tp_size=2, plan={"0": ColwiseParallel(), "2": RowwiseParallel()})',
        ("TorchTensorParallelPlugin",),
        (2,),
        2,
    ),
    "replicas of tensor": _mesh(dp_replicate_size=2, tp_size=2),
    "shards of tensor": _mesh(dp_shard_size=2, tp_size=2),
}
ORDERS = {
    "in order": "",
    "shuffled": "shuffle=True",
    "shuffled by a generator": "shuffle=True, generator=torch.Generator().manual_seed(3)",
    "seedable": "shuffle=True",
    "weighted": "sampler=WeightedRandomSampler([1 + index % 3 for index in range({n})], {n} + 1, "
    "generator=torch.Generator().manual_seed(3))",
    "backwards": "sampler=Backwards({n})",
    "batch sampler": "batch_sampler=BatchSampler(Backwards({n}), {size}, {drop})",
    "own batches": "batch_sampler=Groups({n})",
}
"""How the samples are ordered: by name, the arguments of the loader."""
OPTIMIZERS = {
    "sgd": "torch.optim.SGD(model.parameters(), lr=0.1)",
    "momentum": "torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)",
    "adamw": "torch.optim.AdamW(model.parameters(), lr=0.01)",
    "groups": 'torch.optim.SGD([{"params": [each], "lr": 0.02 * n} for n, each in enumerate(model.parameters(), 1)])',
}
SCHEDULERS = {
    "step": "torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.5)",
    "exponential": "torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)",
    "cosine": "torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)",
    "restarts": "torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 4)",
    "linear": "torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=7)",
    "one cycle": "torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=total_steps)",
    "lambda": "torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))",
    "sequence": "torch.optim.lr_scheduler.SequentialLR(optimizer, ["
    "torch.optim.lr_scheduler.ConstantLR(optimizer, 0.1, 3), "
    "torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)], [3])",
}
CLIPS = {
    "norm": "accelerator.clip_grad_norm_({model}.parameters(), 0.1)",
    "value": "accelerator.clip_grad_value_({model}.parameters(), 0.01)",
}
METRICS = {
    "dict": ('{"index": batch["index"], "errors": errors}', 'zip(found["index"].tolist(), found["errors"].tolist())'),
    "tuple": ('(batch["index"], errors)', "zip(found[0].tolist(), found[1].tolist())"),
    "tensor": ('torch.stack([batch["index"].double(), errors], 1)', "found.tolist()"),
    "nested": (
        '{"a": [batch["index"], {"b": errors[:, None]}]}',
        'zip(found["a"][0].tolist(), found["a"][1]["b"][:, 0].tolist())',
    ),
    "objects": ('list(zip(batch["index"].tolist(), errors.tolist()))', "found"),
}
"""What is gathered, and how it is read."""

_MAP = """
class Samples(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return sample(index)
"""
_STREAM = """
class Stream(IterableDataset):
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        return map(sample, range(self.count))
"""
_LENGTH = """
    def __len__(self):
        return self.count
"""
_BACKWARDS = """
class Backwards(Sampler):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __iter__(self):
        return iter(range(self.count - 1, -1, -1))
"""
_GROUPS = """
class Groups(Sampler):
    def __init__(self, count):
        self.groups = []
        while count:
            size = min(count, 1 + len(self.groups) % 3)
            self.groups.append(list(range(count - size, count)))
            count -= size

    def __len__(self):
        return len(self.groups)

    def __iter__(self):
        return iter(self.groups)
"""
MODELS = {
    "plain": [],
    "frozen": ["model[0].bias.requires_grad = False"],
    "tied": [
        "model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))",
        "model[2].weight = model[0].weight",
    ],
    "wide": ["model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3), nn.GELU(), nn.Linear(3, 1))"],
}
"""What is different from the plain model. The sizes of some can't be divided by the number of ranks."""


_UTILS = ("DataLoaderConfiguration", "GradientAccumulationPlugin")
"""What is imported from `utils`."""


def _imports(program: Program, library: str) -> list[str]:
    names = ["Accelerator", *["DataLoaderConfiguration"] * bool(_loading(program))]
    names += ["GradientAccumulationPlugin"] * any("Plugin" in each for each in _accumulating(program))
    names += ["LocalSGD"] * bool(program.local_steps)
    names += ["notebook_launcher"]
    others = list(STRATEGIES[program.strategy].names)
    lines = ["import tempfile", ""] if program.saves else []
    lines += ["import torch", "from torch import nn"]
    if program.strategy == "tensor":
        lines += ["from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel"]
    lines += ["from torch.utils.data import ("]
    lines += ["    BatchSampler, DataLoader, Dataset, IterableDataset, Sampler, WeightedRandomSampler,", ")", ""]
    lines += [f"from {library} import {', '.join(name for name in names if name not in _UTILS)}"]
    others += [name for name in names if name in _UTILS]
    return lines + [f"from {library}.utils import {', '.join(others)}"] * bool(others)


def _sample(program: Program) -> list[str]:
    return [
        "def sample(index):",
        f"    inputs = torch.sin((index + 1) * torch.arange(1, 5, dtype={_dtype(program)}))",
        '    return {"index": index, "inputs": inputs, "target": torch.cos(inputs.sum()) + 1}',
    ]


def _dtype(program: Program) -> str:
    return "torch.float64" if program.precision == "no" else "torch.float32"


def _samples(program: Program) -> list[str]:
    text = _MAP if not program.is_stream else _STREAM + _LENGTH * (program.data == "sized stream")
    if program.is_stream and (program.evaluated or program.turns):
        text += "\n" + _MAP
    return [text]


def _samplers(program: Program) -> list[list[str]]:
    text = ORDERS[program.order]
    return [[_BACKWARDS]] * ("Backwards" in text) + [[_GROUPS]] * ("Groups" in text)


def _makers(program: Program) -> list[str]:
    kind = "Stream" if program.is_stream else "Samples"
    order = ORDERS[program.order].format(n=program.samples, size=program.batch_size, drop=program.drop_last)
    loader = [f"{kind}({program.samples})"]
    if "batch_sampler" not in order:
        loader += [f"batch_size={program.batch_size}", *["drop_last=True"] * program.drop_last]
    loader += [order] * bool(order)
    loader += [f"num_workers={program.workers}"] * bool(program.workers)
    lines = [
        "def make_loader():",
        f"    return DataLoader({', '.join(loader)})",
        "\n",
        *_model(program),
    ]
    lines += ["\n", "def make_optimizer(model):", f"    return {OPTIMIZERS[program.optimizer]}"]
    if program.scheduler:
        lines += ["\n", f"def make_scheduler(optimizer, total_steps={program.total_steps}):"]
        lines += [f"    return {SCHEDULERS[program.scheduler]}"]
    return lines


def _model(program: Program) -> list[str]:
    lines = ["torch.manual_seed(seed)", "model = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 1))"]
    lines += [*MODELS[program.model], f"return model.to({_dtype(program)})"]
    return ["def make_model(seed=0):", *_indented(lines)]


def _loading(program: Program) -> str:
    """The arguments of the `DataLoaderConfiguration`."""
    options: dict[str, object] = {}
    if program.split_batches:
        options["split_batches"] = True
    if not program.even_batches:
        options["even_batches"] = False
    if program.dispatch_batches is not None:
        options["dispatch_batches"] = program.dispatch_batches
    if program.is_stateful:
        options["use_stateful_dataloader"] = True
    if program.order == "seedable":
        options |= {"use_seedable_sampler": True, "data_seed": 5}
    return ", ".join(f"{name}={value}" for name, value in options.items())


def _train(program: Program, library: str) -> list[str]:
    options = ["cpu=True"] * (library == ACCELERATES)
    options += _accumulating(program)
    options += [f'mixed_precision="{program.precision}"'] * (program.precision != "no")
    options += ["step_scheduler_with_optimizer=False"] * (program.schedules == "alone")
    options += [f"dataloader_config=DataLoaderConfiguration({_loading(program)})"] * bool(_loading(program))
    options += [STRATEGIES[program.strategy].options] * bool(STRATEGIES[program.strategy].options)
    lines = [f"accelerator = Accelerator({', '.join(options)})"]
    objects = [("model", "make_model()"), ("optimizer", "make_optimizer(model)"), ("loader", "make_loader()")]
    if program.scheduler:
        objects += [("scheduler", "make_scheduler(optimizer)")]
    if program.models > 1:
        objects += [("other", "make_model(1)"), ("others", "make_optimizer(other)")]
    if program.turns:
        objects += [("second", f"DataLoader(Samples({program.turns}), batch_size={program.batch_size})")]
    if program.evaluated:
        objects += [("evaluation", f"DataLoader(Samples({program.evaluated}), batch_size={program.batch_size})")]
    lines += [f"{name} = {value}" for name, value in objects]
    names = ", ".join(name for name, _ in objects)
    lines += [f"{names} = accelerator.prepare({names})"]
    lines += ["seen, rates, losses, evaluations, reduced = [], [], [], [], []"]
    if program.evaluated:
        lines += ["", "def evaluate():", *_indented(_evaluation()), ""]
    if program.saves:
        lines += ["if resumes:", "    accelerator.load_state(folder)"]
        lines += [f"for epoch in range(first_epoch, {program.epochs}):"]
    else:
        lines += [f"for epoch in range({program.epochs}):"]
    lines += _indented(_epoch(program))
    for name in ["model", "other"][: program.models]:
        lines += [f"state = accelerator.get_state_dict({name})"]
        lines += [f"{name}_weights = {{name: each.tolist() for name, each in state.items()}}"]
    weights = ", ".join(f"{name}_weights" for name in ["model", "other"][: program.models])
    found = ["seen", "rates", "losses", "evaluations", "reduced"]
    lines += [f"return {{{', '.join(f'{name!r}: {name}' for name in found)}, 'weights': [{weights}]}}"]
    arguments = "folder, resumes=False, first_epoch=0, skipped=0" if program.saves else ""
    return [f"def train({arguments}):", *_indented(lines)]


def _accumulating(program: Program) -> list[str]:
    if program.forces_last and not program.syncs_each:
        return [f"gradient_accumulation_steps={program.accumulation}"] * (program.accumulation > 1)
    options = [f"num_steps={program.accumulation}"]
    options += ["sync_with_dataloader=False"] * (not program.forces_last)
    options += ["sync_each_batch=True"] * program.syncs_each
    return [f"gradient_accumulation_plugin=GradientAccumulationPlugin({', '.join(options)})"]


def _evaluation() -> list[str]:
    return [
        "found = []",
        "model.eval()",
        "for batch in evaluation:",
        "    with torch.no_grad():",
        '        errors = (model(batch["inputs"])[:, 0] - batch["target"]).square()',
        '    indices, errors = accelerator.gather_for_metrics((batch["index"], errors))',
        "    found += zip(indices.tolist(), errors.tolist())",
        "model.train()",
        "evaluations.append(found)",
    ]


def _epoch(program: Program) -> list[str]:
    lines = ["seen.append([])", "losses.append([])"]
    if program.saves and not program.is_stateful:
        lines += ["batches = loader", "if resumes and epoch == first_epoch and skipped:"]
        lines += ["    batches = accelerator.skip_first_batches(loader, skipped)"]
        loop = ["for batch in batches:", *_indented(_step(program))]
    else:
        loop = ["for batch in loader:", *_indented(_step(program))]
    if program.turns:
        loop = [
            "for batches in (loader, second):",
            *_indented([*lines, loop[0].replace("loader", "batches"), *loop[1:]]),
        ]
        lines = []
    if program.is_joined:
        loop = ["with accelerator.join_uneven_inputs([model]):", *_indented(loop)]
    if program.local_steps:
        loop = [f"with LocalSGD(accelerator, model, {program.local_steps}) as local:", *_indented(loop)]
    if program.scheduler and program.schedules == "epochs":
        loop += ["scheduler.step()"]
    return lines + loop + ["evaluate()"] * (program.evaluated > 0 and not program.evaluates_within)


def _step(program: Program) -> list[str]:
    lines = ['seen[-1].append(batch["index"].tolist())']
    inner = []
    for model, optimizer in [("model", "optimizer"), ("other", "others")][: program.models]:
        inner += _backward(program, model, "errors" if model == "model" else "other_errors")
        if program.clip:
            inner += ["if accelerator.sync_gradients:", "    " + CLIPS[program.clip].format(model=model)]
        schedules = model == "model" and bool(program.scheduler) and program.schedules != "epochs"
        inner += [f"{optimizer}.step()", *["scheduler.step()"] * schedules]
        inner += [f"{optimizer}.zero_grad()"]
    inner += ["local.step()"] * bool(program.local_steps)
    models = ", ".join(["model", "other"][: program.models])
    lines += [f"with accelerator.accumulate({models}):", *_indented(inner)]
    lines += ['rates.append([group["lr"] for group in optimizer.param_groups])']
    if not program.is_joined:
        given, read = METRICS["objects" if program.is_ragged else program.metrics]
        lines += [
            "errors = errors.detach()",
            f"found = accelerator.gather_for_metrics({given})",
            f"losses[-1] += {read}",
        ]
        if program.reduces:
            lines += [f'reduced.append(accelerator.reduce(errors.mean(), "{program.reduces}").item())']
    lines += ["evaluate()"] * (program.evaluated > 0 and program.evaluates_within)
    if program.saves:
        epoch, number = program.saves
        lines += [
            f"if not resumes and epoch == {epoch} and len(seen[-1]) == {number}:",
            "    accelerator.save_state(folder)",
        ]
    if program.stops:
        rank, number = program.stops
        lines += [
            f"if accelerator.process_index == {rank} and len(rates) == {number}:",
            "    accelerator.set_trigger()",
        ]
        lines += ["if accelerator.check_trigger():", "    break"]
    return lines


def _backward(program: Program, model: str, errors: str) -> list[str]:
    forward = [f'{errors} = ({model}(batch["inputs"])[:, 0] - batch["target"]).square()']
    if not program.nested:
        return [*forward, f"accelerator.backward({errors}.mean())"]
    first = [*forward, f"accelerator.backward({errors}.mean() / 4)"]
    return [
        f"with accelerator.no_sync({model}):",
        *_indented(first),
        *forward,
        f"accelerator.backward({errors}.mean() * 3 / 4)",
    ]


def _main(program: Program, library: str) -> list[str]:
    device = ', device="cpu"' if library == OURS else ""
    if not program.saves:
        launches = [f"print(notebook_launcher(train, num_processes={program.ranks}{device}))"]
    else:
        launches = [
            "with tempfile.TemporaryDirectory() as folder:",
            f"    print(notebook_launcher(train, (folder,), num_processes={program.ranks}{device}))",
            f"    again = (folder, True, *{resumption(program)})",
            f"    print(notebook_launcher(train, again, num_processes={program.resuming_ranks}{device}))",
        ]
    return ['if __name__ == "__main__":', *_indented(launches)]


def rounds(program: Program) -> int:
    """How many batches each rank has in an epoch."""
    count = program.samples + (program.order == "weighted")
    size = program.batch_size * (1 if program.split_batches else program.shares)
    return count // size if program.drop_last else -(-count // size)


def resumption(program: Program) -> tuple[int, int]:
    """The epoch in which a training continues, and the batches that it skips there."""
    assert program.saves
    epoch, done = program.saves
    if done >= rounds(program) and not program.is_stateful:  # which is "at the end of this epoch"
        return epoch + 1, 0
    return epoch, done if program.split_batches else done * program.ranks // program.resuming_ranks


def _indented(lines: list[str]) -> list[str]:
    return ["    " + line if line.strip() else "" for each in lines for line in each.split("\n")]
