"""A program: a small training with one choice for each thing that may matter, which prints itself as a script.

The script is what the ranks run, with `notebook_accel` or, with only its imports changed, with Accelerate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

OURS, ACCELERATES = "notebook_accel", "accelerate"


@dataclass(frozen=True, kw_only=True)
class Program:
    """What a user may choose. The defaults are those of the simplest program, towards which a failure shrinks."""

    ranks: int = 1
    strategy: str = "ddp"
    """A key of `STRATEGIES`."""
    data: str = "map"
    """`map`: a dataset with indices; `stream`: an iterable one; `sized stream`: with a length; `files`: of files."""
    files: int = 1
    """How many files it then has."""
    form: str = "dict"
    """A key of `FORMS`."""
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
    counts: bool = False
    """Whether `Accelerator.epochs` counts them. A training run that `saves` ends there, and another continues it."""
    seeds: bool = False
    """Whether each rank has a seed of its own, from which the first weights follow."""
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
    metric: str = "mean"
    """What a plateau is told: the `mean` of all ranks, or each rank's `own` error."""
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
    """How many samples a second loader has, which trains the models in each epoch, too."""
    pairing: str = ""
    """How it is read: after the first one, with it in `zip`, or `in turn`."""

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
        return self.data != "map"

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
    def is_interrupted(self) -> bool:
        """Whether a second training continues from the last point that the first one has saved by itself."""
        return self.counts and self.saves is not None

    @property
    def reads_own_files(self) -> bool:
        """Whether ranks read different files: "if the number of ranks divides their number"."""
        chosen = self.data == "files" and not (self.dispatches or self.even_batches or self.split_batches)
        return chosen and self.shares > 1 and self.files % self.shares == 0

    @property
    def shares_sequences(self) -> bool:
        """Whether ranks have different parts of the same sequences."""
        return "context" in self.strategy

    @property
    def names(self) -> list[str]:
        """The models."""
        return ["model", "other"][: self.models]

    @property
    def optimizers(self) -> list[str]:
        """Theirs."""
        return ["optimizer", "others"][: self.models]

    @property
    def is_schedule_free(self) -> bool:
        """Whether the optimizers have to be told when the models are evaluated."""
        return self.optimizer == "schedule-free"

    @property
    def total_steps(self) -> int:
        """What a user computes for a schedule: the batches that the loader has before it is prepared."""
        size = 1 if self.is_ragged else self.batch_size
        drawn = self.samples + (self.order == "weighted")
        return max(2, self.epochs * (-(-drawn // size) + -(-self.turns // size)))

    def script(self, library: str = OURS) -> str:
        """The source of a script that trains so, and whose `train()` returns what it has seen."""
        parts = [_imports(self, library), _sample(self), _form(self), _samples(self), *_samplers(self)]
        parts += [[_PAIRING]] * (self.pairing == "in turn")
        parts += [[_SCHEDULE_FREE]] * self.is_schedule_free + [[_SEQUENCE]] * (self.model == "sequence")
        parts += [_makers(self)]
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
    """Ranks in so many dimensions."""
    handler = 'tp_handler=TorchTensorParallelConfig(plan={"0": "colwise", "2": "rowwise"})'
    splits = "tp_size" in sizes
    ranks = math.prod(sizes.values())
    options = ", ".join([*(f"{name}={size}" for name, size in sizes.items()), *[handler] * splits])
    return Kind(
        f"parallelism_config=ParallelismConfig({options})",
        ("ParallelismConfig", *["TorchTensorParallelConfig"] * splits),
        (ranks,),
        sizes.get("tp_size", 1) * sizes.get("cp_size", 1),
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
    "context": _mesh(cp_size=2),
    "replicas of context": _mesh(dp_replicate_size=2, cp_size=2),
    "shards of context": _mesh(dp_shard_size=2, cp_size=2),
}
ORDERS = {
    "in order": "",
    "shuffled": "shuffle=True",
    "shuffled by a generator": "shuffle=True, generator=torch.Generator().manual_seed(3)",
    "seedable": "shuffle=True",
    "seedable by torch": "shuffle=True",
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
    "schedule-free": "ScheduleFree(model.parameters(), lr=0.1)",
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
    "plateau": "torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)",
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
    "texts": (
        '{"name": [str(each) for each in batch["index"].tolist()], "errors": errors}',
        'zip(map(int, found["name"]), found["errors"].tolist())',
    ),
    "objects": ('list(zip(batch["index"].tolist(), errors.tolist()))', "found"),
}
"""What is gathered, and how it is read."""

FORMS = {
    "dict": ("", ""),
    "texts": (
        """
def record(index):
    return {**sample(index), "text": str(index), "raw": bytes([index])}


def unpack(batch):
    assert batch["text"] == [str(index) for index in batch["index"].tolist()]
    assert b"".join(batch["raw"]) == bytes(batch["index"].tolist())
    return batch
""",
        "",
    ),
    "lists": (
        """
def collate(samples):
    tokens = [[int(each["index"])] * (20 + each["index"] % 3) for each in samples]
    return {**default_collate(samples), "tokens": tokens}


def unpack(batch):
    assert batch["tokens"] == [[index] * (20 + index % 3) for index in batch["index"].tolist()]
    return batch
""",
        "collate_fn=collate",
    ),
    "named tuple": (
        """
Record = namedtuple("Record", "index inputs target text")


def record(index):
    return Record(**sample(index), text=str(index))


def unpack(batch):
    assert list(batch.text) == [str(index) for index in batch.index.tolist()]
    return batch._asdict()
""",
        "",
    ),
    "dataclass": (
        """
@dataclass
class Batch:
    index: torch.Tensor
    inputs: torch.Tensor
    target: torch.Tensor
    text: list


def collate(samples):
    return Batch(**default_collate(samples), text=[str(each["index"]) for each in samples])


def unpack(batch):
    assert batch.text == [str(index) for index in batch.index.tolist()]
    return dict(vars(batch))
""",
        "collate_fn=collate",
    ),
    "records": (
        """
def unpack(batch):
    return default_collate(batch)
""",
        "collate_fn=list",
    ),
}
"""What a batch is: its functions, and the argument of the loader. `unpack` makes a dict of it, and checks the rest."""

_MAP = """
class Samples(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return record(index)
"""
_STREAM = """
class Stream(IterableDataset):
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        return map(record, range(self.count))
"""
_LENGTH = """
    def __len__(self):
        return self.count
"""
_FILES = """
class Files(IterableDataset):
    def __init__(self, files):
        self.files = files

    @property
    def num_shards(self):
        return len(self.files)

    def shard(self, num_shards, index):
        count = len(self.files) // num_shards
        return Files(self.files[index * count : (index + 1) * count])

    def __iter__(self):
        for file in self.files:
            yield from map(record, file)
"""
_PAIRING = """
def in_turn(first, second):
    others = iter(second)
    for batch in first:
        yield batch
        if (other := next(others, None)) is not None:
            yield other
"""
_SCHEDULE_FREE = """
class ScheduleFree(torch.optim.Optimizer):
    def __init__(self, parameters, lr, beta=0.9):
        super().__init__(parameters, {"lr": lr, "beta": beta, "k": 0, "train_mode": False})

    def train(self):
        self.turn(True)

    def eval(self):
        self.turn(False)

    @torch.no_grad()
    def turn(self, mode):
        for group in self.param_groups:
            if group["train_mode"] != mode:
                group["train_mode"] = mode
                for each in group["params"]:
                    if "z" in self.state[each]:
                        share = 1 - group["beta"] if mode else 1 - 1 / group["beta"]
                        each.mul_(1 - share).add_(self.state[each]["z"] * share)

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            assert group["train_mode"]
            share = 1 / (group["k"] + 1)
            for each in group["params"]:
                if each.grad is not None:
                    z = self.state[each].setdefault("z", each.clone())
                    each.mul_(1 - share).add_(z * share)
                    each.add_(each.grad, alpha=group["lr"] * (group["beta"] * (1 - share) - 1))
                    z.sub_(each.grad, alpha=group["lr"])
            group["k"] += 1
"""
_SEQUENCE = """
class Sequences(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.read = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, inputs):
        hidden = torch.tanh(self.embed(inputs))
        heads = hidden.unflatten(-1, (2, 4)).transpose(1, 2)
        found = nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        return self.read(hidden + found.transpose(1, 2).flatten(2))
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
    "sequence": ["model = Sequences()"],
    "wide": ["model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3), nn.GELU(), nn.Linear(3, 1))"],
}
"""What is different from the plain model. The sizes of some can't be divided by the number of ranks."""


_UTILS = ("DataLoaderConfiguration", "GradientAccumulationPlugin", "set_seed")
"""What is imported from `utils`."""


def _imports(program: Program, library: str) -> list[str]:
    names = ["Accelerator", *["DataLoaderConfiguration"] * bool(_loading(program))]
    names += ["GradientAccumulationPlugin"] * any("Plugin" in each for each in _accumulating(program))
    names += ["notebook_launcher"]
    others = list(STRATEGIES[program.strategy].names)
    names += ["set_seed"] * program.seeds
    lines = ["import os"] * program.is_interrupted + ["import tempfile"] * bool(program.saves)
    lines += ["from collections import namedtuple"] * (program.form == "named tuple")
    lines += ["from dataclasses import dataclass"] * (program.form == "dataclass")
    lines += [""] * bool(lines) + ["import torch", "from torch import nn"]
    if program.strategy == "tensor":
        lines += ["from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel"]
    lines += ["from torch.utils.data import ("]
    lines += [
        "    BatchSampler, DataLoader, Dataset, IterableDataset, Sampler, WeightedRandomSampler, default_collate,"
    ]
    lines += [")", ""]
    lines += [f"from {library} import {', '.join(name for name in names if name not in _UTILS)}"]
    lines += [f"from {library}.local_sgd import LocalSGD"] * bool(program.local_steps)
    others += [name for name in names if name in _UTILS]
    return lines + [f"from {library}.utils import {', '.join(others)}"] * bool(others)


def _sample(program: Program) -> list[str]:
    lines = [f"    inputs = torch.sin((index + 1) * torch.arange(1, 5, dtype={_dtype(program)}))"]
    total = "inputs.sum()"
    if program.model == "sequence":
        lines = [f"    inputs = torch.sin((index + 1) * torch.arange(1, 17, dtype={_dtype(program)})).view(4, 4)"]
        total = "inputs.sum(1)"
    return [
        "def sample(index):",
        *lines,
        f'    return {{"index": index, "inputs": inputs, "target": torch.cos({total}) + 1}}',
    ]


def _form(program: Program) -> list[str]:
    text, _ = FORMS[program.form]
    lines = [] if "def record" in text else ["record = sample"]
    return [*lines, text.strip("\n") or "def unpack(batch):\n    return batch"]


def _dtype(program: Program) -> str:
    return "torch.float64" if program.precision == "no" else "torch.float32"


def _samples(program: Program) -> list[str]:
    text = _MAP if not program.is_stream else _STREAM + _LENGTH * (program.data == "sized stream")
    text = _FILES if program.data == "files" else text
    if program.is_stream and (program.evaluated or program.turns):
        text += "\n" + _MAP
    return [text]


def files(program: Program) -> list[range]:
    """The samples of each file."""
    count, number = program.samples, program.files
    return [range(index * count // number, (index + 1) * count // number) for index in range(number)]


def _samplers(program: Program) -> list[list[str]]:
    text = ORDERS[program.order]
    return [[_BACKWARDS]] * ("Backwards" in text) + [[_GROUPS]] * ("Groups" in text)


def _makers(program: Program) -> list[str]:
    kind = "Stream" if program.is_stream else "Samples"
    order = ORDERS[program.order].format(n=program.samples, size=program.batch_size, drop=program.drop_last)
    loader = [f"Files({files(program)})" if program.data == "files" else f"{kind}({program.samples})"]
    if "batch_sampler" not in order:
        loader += [f"batch_size={program.batch_size}", *["drop_last=True"] * program.drop_last]
    loader += [order] * bool(order)
    loader += [f"num_workers={program.workers}"] * bool(program.workers) + _collating(program)
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


def _collating(program: Program) -> list[str]:
    return [FORMS[program.form][1]] * bool(FORMS[program.form][1])


def _other_loader(program: Program, samples: int) -> str:
    """One of other samples, in order."""
    return f"DataLoader({', '.join([f'Samples({samples})', f'batch_size={program.batch_size}', *_collating(program)])})"


def _model(program: Program) -> list[str]:
    lines = ["torch.manual_seed(seed)"] * (not program.seeds)
    lines += ["model = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 1))"]
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
    if "seedable" in program.order:
        options |= {"use_seedable_sampler": True}
        options |= {"data_seed": 5} if program.order == "seedable" else {}
    return ", ".join(f"{name}={value}" for name, value in options.items())


def _train(program: Program, library: str) -> list[str]:
    options = ["cpu=True"] * (library == ACCELERATES)
    options += _accumulating(program)
    options += [f'mixed_precision="{program.precision}"'] * (program.precision != "no")
    options += ["step_scheduler_with_optimizer=False"] * (program.schedules == "alone")
    options += [f"dataloader_config=DataLoaderConfiguration({_loading(program)})"] * bool(_loading(program))
    options += [STRATEGIES[program.strategy].options] * bool(STRATEGIES[program.strategy].options)
    lines = [
        'os.environ["NOTEBOOK_ACCEL_CHECKPOINT_DIR"] = folder',
        'os.environ["NOTEBOOK_ACCEL_CHECKPOINT_EVERY"] = "1"',
    ] * program.is_interrupted
    lines += [f"accelerator = Accelerator({', '.join(options)})"]
    lines += ["set_seed(3, device_specific=True)"] * program.seeds
    objects = [("model", "make_model()"), ("optimizer", "make_optimizer(model)"), ("loader", "make_loader()")]
    if program.scheduler:
        objects += [("scheduler", "make_scheduler(optimizer)")]
    if program.models > 1:
        objects += [("other", "make_model(1)"), ("others", "make_optimizer(other)")]
    if program.turns:
        objects += [("second", _other_loader(program, program.turns))]
    if program.evaluated:
        objects += [("evaluation", _other_loader(program, program.evaluated))]
    lines += [f"{name} = {value}" for name, value in objects]
    names = ", ".join(name for name, _ in objects)
    lines += [f"{names} = accelerator.prepare({names})"]
    lines += ["seen, rates, losses, evaluations, reduced = [], [], [], [], []"]
    lines += ["last = 0.0"] * (program.scheduler == "plateau")
    if program.evaluated:
        lines += ["", "def evaluate():", *_indented(_evaluation(program)), ""]
    if program.saves and not program.counts:
        lines += ["if resumes:", "    accelerator.load_state(folder)"]
    lines += _told(program, "train")
    if program.counts:
        lines += [f"for epoch in accelerator.epochs({program.epochs}):"]
    elif program.saves:
        lines += [f"for epoch in range(first_epoch, {program.epochs}):"]
    else:
        lines += [f"for epoch in range({program.epochs}):"]
    lines += _indented(_epoch(program)) + _told(program, "eval")
    for name in program.names:
        lines += [f"state = accelerator.get_state_dict({name})"]
        lines += [f"{name}_weights = {{name: each.tolist() for name, each in state.items()}}"]
    lines += [f"return {_found(', '.join(f'{name}_weights' for name in program.names))}"]
    arguments = "folder, resumes=False, first_epoch=0, skipped=0" if program.saves else ""
    arguments = "folder, resumes=False" if program.is_interrupted else arguments
    return [f"def train({arguments}):", *_indented(lines)]


def _accumulating(program: Program) -> list[str]:
    if program.forces_last and not program.syncs_each:
        return [f"gradient_accumulation_steps={program.accumulation}"] * (program.accumulation > 1)
    options = [f"num_steps={program.accumulation}"]
    options += ["sync_with_dataloader=False"] * (not program.forces_last)
    options += ["sync_each_batch=True"] * program.syncs_each
    return [f"gradient_accumulation_plugin=GradientAccumulationPlugin({', '.join(options)})"]


def _found(weights: str) -> str:
    """What `train` returns."""
    names = ["seen", "rates", "losses", "evaluations", "reduced"]
    return f"{{{', '.join(f'{name!r}: {name}' for name in names)}, 'weights': [{weights}]}}"


def _told(program: Program, mode: str) -> list[str]:
    """Tells the optimizers what comes."""
    return [f"{name}.{mode}()" for name in program.optimizers] if program.is_schedule_free else []


def _evaluation(program: Program) -> list[str]:
    return [
        "found = []",
        "model.eval()",
        *_told(program, "eval"),
        "for batch in evaluation:",
        "    batch = unpack(batch)",
        "    with torch.no_grad():",
        f"        errors = {_errors(program, 'model', 'batch')}",
        '    indices, errors = accelerator.gather_for_metrics((batch["index"], errors))',
        "    found += zip(indices.tolist(), errors.tolist())",
        "model.train()",
        *_told(program, "train"),
        "evaluations.append(found)",
    ]


def _errors(program: Program, model: str, batch: str) -> str:
    """The error of each sample."""
    if program.model == "sequence":
        return f'({model}({batch}["inputs"])[..., 0] - {batch}["target"]).square().mean(1)'
    return f'({model}({batch}["inputs"])[:, 0] - {batch}["target"]).square()'


def _epoch(program: Program) -> list[str]:
    lines = ["seen.append([])", "losses.append([])"]
    source, names = "loader", "batch"
    if program.saves and not (program.is_stateful or program.counts):
        lines += ["batches = loader", "if resumes and epoch == first_epoch and skipped:"]
        lines += ["    batches = accelerator.skip_first_batches(loader, skipped)"]
        source = "batches"
    elif program.pairing == "zip":
        source, names = "zip(loader, second)", "batch, paired"
    elif program.pairing == "in turn":
        source = "in_turn(loader, second)"
    elif program.turns:
        source = "batches"
    loop = [f"for {names} in {source}:", *_indented(_step(program))]
    if program.turns and not program.pairing:
        loop = ["for batches in (loader, second):", *_indented([*lines, *loop])]
        lines = []
    if program.is_joined:
        loop = ["with accelerator.join_uneven_inputs([model]):", *_indented(loop)]
    if program.local_steps:
        loop = [f"with LocalSGD(accelerator, model, {program.local_steps}) as local:", *_indented(loop)]
    if program.scheduler and program.schedules == "epochs":
        loop += [_scheduled(program)]
    return lines + loop + ["evaluate()"] * (program.evaluated > 0 and not program.evaluates_within)


def _scheduled(program: Program) -> str:
    """The step of the schedule."""
    if program.scheduler != "plateau":
        return "scheduler.step()"
    metric = (
        'accelerator.reduce(torch.tensor(last, dtype=torch.float64), "mean").item()'
        if program.metric == "mean"
        else "last"
    )
    return f"scheduler.step({metric})"


def _step(program: Program) -> list[str]:
    lines = ["batch = unpack(batch)", *["paired = unpack(paired)"] * (program.pairing == "zip")]
    lines += ['seen[-1].append(batch["index"].tolist())']
    if program.pairing == "zip":
        lines += ['seen[-1].append(paired["index"].tolist())']
    if program.shares_sequences:
        lines += ["with torch.no_grad():", f"    whole = {_errors(program, 'model', 'batch')}"]
    inner = []
    for model, optimizer in zip(program.names, program.optimizers, strict=True):
        inner += _backward(program, model, "errors" if model == "model" else "other_errors")
        if program.clip:
            inner += ["if accelerator.sync_gradients:", "    " + CLIPS[program.clip].format(model=model)]
        inner += [f"{optimizer}.step()"]
        if model == "model" and program.scheduler:
            inner += ["last = errors.mean().item()"] * (program.scheduler == "plateau")
            inner += [_scheduled(program)] * (program.schedules != "epochs")
        inner += [f"{optimizer}.zero_grad()"]
    inner += ["local.step()"] * bool(program.local_steps)
    lines += [f"with accelerator.accumulate({', '.join(program.names)}):", *_indented(inner)]
    lines += ['rates.append([group["lr"] for group in optimizer.param_groups])']
    if not program.is_joined:
        given, read = METRICS["objects" if program.is_ragged else program.metrics]
        if program.reduces:
            lines += [f'reduced.append(accelerator.reduce(errors.mean().detach(), "{program.reduces}").item())']
        if program.pairing != "zip":  # where it can't know of which loader a value is
            lines += [
                "errors = whole" if program.shares_sequences else "errors = errors.detach()",
                f"found = accelerator.gather_for_metrics({given})",
                f"losses[-1] += {read}",
            ]
    lines += ["evaluate()"] * (program.evaluated > 0 and program.evaluates_within)
    if program.saves:
        epoch, number = program.saves
        lines += [
            f"if not resumes and epoch == {epoch} and len(seen[-1]) == {number}:",
            f"    return {_found('')}" if program.is_interrupted else "    accelerator.save_state(folder)",
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
    forward = [f"{errors} = {_errors(program, model, 'batch')}"]
    loss = f"{errors}.mean()"
    if program.pairing == "zip":
        loss = f"({errors}.mean() + {_errors(program, model, 'paired')}.mean()) / 2"
    lines = [*forward, f"accelerator.backward({loss})"]
    if program.nested:
        first = [*forward, f"accelerator.backward({loss} / 4)"]
        lines = [
            f"with accelerator.no_sync({model}):",
            *_indented(first),
            *forward,
            f"accelerator.backward({loss} * 3 / 4)",
        ]
    if program.shares_sequences:
        tensors = [
            f'{each}["{key}"]'
            for each in ["batch", "paired"][: 1 + bool(program.pairing == "zip")]
            for key in ("inputs", "target")
        ]
        buffers = f"buffers=[{', '.join(tensors)}], buffer_seq_dims={[1] * len(tensors)}"
        lines = [f"with accelerator.maybe_context_parallel({buffers}):", *_indented(lines)]
    return lines


def _main(program: Program, library: str) -> list[str]:
    device = ', device="cpu"' if library == OURS else ""
    if not program.saves:
        launches = [f"print(notebook_launcher(train, num_processes={program.ranks}{device}))"]
    elif program.is_interrupted:
        launches = [
            "with tempfile.TemporaryDirectory() as folder:",
            f"    print(notebook_launcher(train, (folder,), num_processes={program.ranks}{device}))",
            f"    print(notebook_launcher(train, (folder, True), num_processes={program.ranks}{device}))",
        ]
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
    """The epoch in which a training run continues, and the batches that it skips there."""
    assert program.saves
    epoch, done = program.saves
    if done >= rounds(program) and not program.is_stateful:  # which is "at the end of this epoch"
        return epoch + 1, 0
    return epoch, done if program.split_batches else done * program.ranks // program.resuming_ranks


def _indented(lines: list[str]) -> list[str]:
    return ["    " + line if line.strip() else "" for each in lines for line in each.split("\n")]
