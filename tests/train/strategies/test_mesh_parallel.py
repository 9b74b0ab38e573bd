"""Several dimensions, each layout against the numbers of one rank."""

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from notebook_accel import Accelerator, AcceleratorState, FullyShardedDataParallelPlugin, ParallelismConfig
from notebook_accel.utils import TorchTensorParallelConfig
from tests.train.conftest import Cases, Ranks, asked_for
from tests.train.strategies import test_context_parallel

pytestmark = pytest.mark.early

SAMPLES = 10
"""In batches of 4 for all ranks together; the last two are left out."""
CLIP = 0.1
"""Below all norms of the gradients."""


class Attention(nn.Module):
    """Causal attention with two heads; as many as its own projections compute, if those are split."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(8, 8, bias=False) for _ in range(4))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        q, k, v = (each(inputs).unflatten(-1, (-1, 4)).transpose(1, 2) for each in (self.q, self.k, self.v))
        found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(found.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.norm = Attention(), nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        inputs = inputs + self.attention(self.norm(inputs))
        return inputs + self.down(torch.relu(self.up(inputs)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(8, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            inputs = block(inputs)
        return self.head(inputs)


PLAN = {
    "blocks.*.attention.[qkv]": "colwise",
    "blocks.*.attention.out": "rowwise",
    "blocks.*.up": "colwise",
    "blocks.*.down": "rowwise",
}


class Planned(Net):
    """With a plan of its own, as models of transformers have, which also names what this one lacks."""

    _tp_plan: ClassVar[dict[str, str]] = {**PLAN, "blocks.*.experts": "moe"}


BLOCKS = {"auto_wrap_policy": "transformer_based_wrap", "transformer_cls_names_to_wrap": ["Block"]}


def dimensions(fsdp: dict[str, Any] | None = None, **sizes: int) -> dict[str, Any]:
    """The arguments of an Accelerator."""
    handler = TorchTensorParallelConfig(plan=PLAN) if sizes.get("tp_size", 1) > 1 else None
    plugin = {} if fsdp is None else {"fsdp_plugin": FullyShardedDataParallelPlugin(**fsdp)}
    return {"parallelism_config": ParallelismConfig(**sizes, tp_handler=handler), **plugin}


LAYOUTS: dict[str, Callable[[], dict[str, Any]]] = {
    "replicate 4": lambda: dimensions(dp_replicate_size=4),
    "none named": dimensions,
    "shard 4": lambda: dimensions(dp_shard_size=4),
    "replicate 2, shard 2": lambda: dimensions(dp_replicate_size=2, dp_shard_size=2),
    "replicate 2, tp 2": lambda: dimensions(dp_replicate_size=2, tp_size=2),
    "shard 2, tp 2": lambda: dimensions(dp_shard_size=2, tp_size=2),
    "shard 2, tp 2, by block, recomputing": lambda: dimensions(
        {**BLOCKS, "activation_checkpointing": True}, dp_shard_size=2, tp_size=2
    ),
}
OTHERS: dict[str, Callable[[], dict[str, Any]]] = {
    "one rank": dict,
    "shards on one rank": lambda: dimensions({}),
    "replicate 2, shard 2, tp 2": lambda: dimensions(dp_replicate_size=2, dp_shard_size=2, tp_size=2),
    "replicate 2, shard 4": lambda: dimensions(dp_replicate_size=2, dp_shard_size=4),
}
"""Layouts of one rank, and of eight."""
AT_NIGHT = {"replicate 4", "none named", "replicate 2, tp 2"}
"""Layouts whose dimensions other ones also have."""
DATA_RANKS = dict.fromkeys(LAYOUTS, 4) | {name: 2 for name in LAYOUTS if "tp" in name}
MESHES = {
    "replicate 4": {"dp_replicate": 4},
    "none named": {"dp_replicate": 4},
    "shard 4": {"dp_shard": 4},
    "replicate 2, shard 2": {"dp_replicate": 2, "dp_shard": 2},
    "replicate 2, tp 2": {"dp_replicate": 2, "dp_shard": 1, "tp": 2},
    "shard 2, tp 2": {"dp_shard": 2, "tp": 2},
}


def loss_of(outputs: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    return (outputs.mean(dim=(1, 2)) - numbers).square().mean()


def trained(arguments: Callable[[], dict[str, Any]], batch_size: int, kind: type[Net] = Net) -> dict[str, Any]:
    """Two epochs; each rank begins with weights of its own, and takes those of the first."""
    accelerator = Accelerator(**arguments(), gradient_accumulation_steps=2)
    torch.manual_seed(accelerator.process_index)
    inputs = torch.arange(SAMPLES * 3 * 8).reshape(SAMPLES, 3, 8).sin()
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(inputs, torch.arange(float(SAMPLES))), batch_size, drop_last=True
    )
    net = kind()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 4 // batch_size)
    model, optimizer, loader, schedule = accelerator.prepare(net, optimizer, loader, schedule)
    norms, losses, seen = [], [], []
    for _ in range(2):
        for batch, numbers in loader:
            with accelerator.accumulate(model):
                loss = loss_of(model(batch), numbers)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    norms.append(accelerator.clip_grad_norm_(model.parameters(), CLIP).item())
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            losses.append(accelerator.gather(loss.detach()).mean().item())
            seen.append(accelerator.gather_for_metrics(numbers).tolist())
    state = accelerator.get_state_dict(model)
    mesh = accelerator.torch_device_mesh
    return {
        "norms": norms,
        "losses": losses,
        "seen": seen,
        "rate": schedule.get_last_lr()[0],
        "type": accelerator.distributed_type.value,
        "mesh": mesh and dict(zip(mesh.mesh_dim_names, mesh.shape, strict=True)),
        "weights": {name: each.tolist() for name, each in state.items()},
    }


@pytest.fixture(scope="module")
def alone() -> Cases:
    return Cases({"plain": (trained, dict, 4), "sequences": (test_context_parallel.trained, {})}, size=1)


def on_layout(name: str) -> dict[str, Any]:
    return trained(LAYOUTS[name], 4 // DATA_RANKS[name])


def own_plan() -> dict[str, Any]:
    return trained(lambda: {"parallelism_config": ParallelismConfig(dp_shard_size=2, tp_size=2)}, 2, Planned)


class Split(Net):
    """Split over the ranks of a mesh before it is prepared, as transformers can do it while it loads a model."""

    def __init__(self) -> None:
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        torch.manual_seed(0)  # as if read from a file
        super().__init__()
        config = AcceleratorState().parallelism_config
        assert config is not None
        mesh = config.get_device_mesh()
        assert mesh is not None
        styles = {"colwise": ColwiseParallel, "rowwise": RowwiseParallel}
        parallelize_module(self, mesh["tp"], {name: styles[style]() for name, style in PLAN.items()})


def split_before() -> dict[str, Any]:
    return trained(lambda: {"parallelism_config": ParallelismConfig(dp_shard_size=2, tp_size=2)}, 2, Split)


@pytest.fixture(scope="module")
def on_four(request: pytest.FixtureRequest) -> Cases:
    cases = {name: (on_layout, name) for name in LAYOUTS}
    others = {"own plan": (own_plan,), "split": (split_before,), "ranks": (numbers_along,), "twice": (made_twice,)}
    return Cases({**cases, **others}, size=4, asked={*asked_for(request, "name"), *others})


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found["seen"] == expected["seen"]
    for name in ("norms", "losses", "rate"):
        assert found[name] == pytest.approx(expected[name], rel=1e-5)
    assert found["weights"].keys() == expected["weights"].keys()
    for name, weight in expected["weights"].items():
        torch.testing.assert_close(torch.tensor(found["weights"][name]), torch.tensor(weight), atol=1e-5, rtol=1e-5)


def unless_at_night(layouts: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.nightly if name in AT_NIGHT else ()) for name in layouts]


@pytest.mark.parametrize("name", unless_at_night(LAYOUTS))
def test_every_layout_trains_as_one_rank_does(name: str, alone: Cases, on_four: Cases) -> None:
    """Four ranks share the cores, and train in each of the layouts: about 25 s."""
    found = on_four[name]
    assert_same(found[0], alone["plain"][0])
    assert min(found[0]["norms"]) > CLIP
    assert len({str([each["norms"], each["losses"], each["seen"]]) for each in found}) == 1


def test_a_model_may_have_the_plan_itself(alone: Cases, on_four: Cases) -> None:
    assert_same(on_four["own plan"][0], alone["plain"][0])


def test_a_model_that_is_split_already_stays_so(alone: Cases, on_four: Cases) -> None:
    assert_same(on_four["split"][0], alone["plain"][0])


@pytest.mark.parametrize("name", unless_at_night(MESHES))
def test_the_mesh_has_the_dimensions(name: str, on_four: Cases) -> None:
    assert on_four[name][0]["mesh"] == MESHES[name]
    sharded = "shard" in name or "tp" in name
    assert on_four[name][0]["type"] == ("FSDP" if sharded else "MULTI_CPU")


def numbers_along() -> tuple[int, int, int]:
    accelerator = Accelerator(**dimensions(dp_shard_size=2, tp_size=2))
    return accelerator.data_parallel_rank, accelerator.data_parallel_shard_rank, accelerator.tensor_parallel_rank


def test_neighbors_share_layers(on_four: Cases) -> None:
    assert on_four["ranks"] == [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1)]


def made_twice() -> list[int | None]:
    """The replicas of two accelerators with sizes that are left out."""
    configs = [Accelerator(**dimensions()).parallelism_config for _ in range(2)]
    return [config and config.dp_replicate_size for config in configs]


def test_a_second_accelerator_may_leave_the_sizes_out_too(on_four: Cases) -> None:
    assert on_four["twice"] == [[4, 4]] * 4


def saved(layout: str, folder: str) -> dict[str, Any]:
    """Two steps, with a checkpoint after the first; the numbers of the second."""
    return stepped(layout, folder, save=True)


def stepped(layout: str, folder: str, save: bool) -> dict[str, Any]:
    full = (
        {"fsdp_plugin": FullyShardedDataParallelPlugin(state_dict_type="FULL_STATE_DICT")}
        if "whole" in folder and layout != "one rank"
        else {}
    )
    accelerator = Accelerator(**{**{**LAYOUTS, **OTHERS}[layout](), **full})
    torch.manual_seed(int(save))
    net = Net()
    model, optimizer = accelerator.prepare(net, torch.optim.AdamW(net.parameters(), lr=0.1))
    inputs = torch.arange(2.0 * 3 * 8).reshape(2, 3, 8).sin()

    def step() -> float:
        loss = model(inputs).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    if save:
        step()
        accelerator.save_state(folder)
        accelerator.save_model(model, f"{folder}/model")
    else:
        accelerator.load_state(folder)
    losses = [step(), step()]
    weights = {name: each.tolist() for name, each in accelerator.get_state_dict(model).items()}
    return {"seen": [], "norms": [], "losses": losses, "rate": 0, "weights": weights}


SAVED = {"shards of hsdp": "replicate 2, shard 2", "shards of tp": "shard 2, tp 2", "whole": "shard 2, tp 2"}
LOADED = [
    ("shards of hsdp", "replicate 2, shard 2"), ("shards of hsdp", "shard 2, tp 2"),
    ("shards of tp", "shard 2, tp 2"), ("shards of tp", "replicate 2, tp 2"),
    ("whole", "shard 2, tp 2"),
]  # fmt: skip
"""What is saved, and the layout that loads it."""


LOADED_ALONE = {"whole": "one rank", "shards of tp": "shards on one rank"}
LOADED_ON_EIGHT = {"shards of hsdp": "replicate 2, shard 2, tp 2", "shards of tp": "replicate 2, shard 4"}
SEQUENCES = {
    "shard 2, cp 4": {"dp_shard_size": 2, "cp_size": 4},
    "shard 2, cp 2, tp 2": {"dp_shard_size": 2, "cp_size": 2, "tp_size": 2},
}
"""Layouts of eight ranks, some of which share sequences."""


def threads_by_accelerator() -> list[int]:
    """After each of three accelerators with replicas and shards, the threads of this rank, those of groups included."""
    found = []
    for _ in range(3):
        accelerator = Accelerator(parallelism_config=ParallelismConfig(dp_replicate_size=2, dp_shard_size=2))
        accelerator.prepare(nn.Linear(4, 4))
        accelerator.free_memory()
        AcceleratorState._reset_state()
        found.append(len(os.listdir("/proc/self/task")))
    return found


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads are counted in /proc")
def test_another_accelerator_needs_no_other_process_groups(ranks: Ranks) -> None:
    for counts in ranks(threads_by_accelerator, size=4):
        assert len(set(counts)) == 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def saves(folder: Path) -> Cases:
    return Cases({name: (saved, layout, str(folder / name)) for name, layout in SAVED.items()}, size=4)


@pytest.fixture(scope="module")
def loads(folder: Path, saves: Cases) -> Cases:
    return Cases({(name, to): (stepped, to, str(folder / name), False) for name, to in LOADED}, size=4)


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "layout"), LOADED)
def test_a_run_goes_on_in_any_layout(name: str, layout: str, saves: Cases, loads: Cases) -> None:
    """Four ranks share the cores, and train in each of the layouts: about 20 s."""
    assert_same(saves[name][0], loads[name, layout][0])


@pytest.fixture(scope="module")
def loads_alone(folder: Path) -> Cases:
    return Cases({name: (stepped, to, str(folder / name), False) for name, to in LOADED_ALONE.items()}, size=1)


@pytest.mark.nightly
@pytest.mark.parametrize("name", LOADED_ALONE)
def test_a_run_goes_on_with_one_rank(name: str, saves: Cases, loads_alone: Cases) -> None:
    assert_same(saves[name][0], loads_alone[name][0])


@pytest.fixture(scope="module")
def on_eight(folder: Path) -> Cases:
    loaded = {name: (stepped, to, str(folder / name), False) for name, to in LOADED_ON_EIGHT.items()}
    shared = {name: (test_context_parallel.trained, sizes) for name, sizes in SEQUENCES.items()}
    return Cases({"three dimensions": (on_three_dimensions,), **loaded, **shared}, size=8)


def on_three_dimensions() -> dict[str, Any]:
    return trained(OTHERS["replicate 2, shard 2, tp 2"], 1)


@pytest.mark.nightly
def test_eight_ranks_train_in_three_dimensions_as_one_does(alone: Cases, saves: Cases, on_eight: Cases) -> None:
    """Eight ranks share the cores, and do in one launch what this test and the next two look at: about 20 s."""
    saves["shards of tp"]  # which some of these cases load
    assert_same(on_eight["three dimensions"][0], alone["plain"][0])


@pytest.mark.nightly
@pytest.mark.parametrize("name", LOADED_ON_EIGHT)
def test_a_run_goes_on_with_more_ranks(name: str, saves: Cases, on_eight: Cases) -> None:
    assert_same(saves[name][0], on_eight[name][0])


@pytest.mark.nightly
@pytest.mark.parametrize("name", SEQUENCES)
def test_eight_ranks_share_sequences_too(name: str, alone: Cases, saves: Cases, on_eight: Cases) -> None:
    saves["shards of tp"]
    found, expected = on_eight[name][0], alone["sequences"][0]
    assert found["norms"] == pytest.approx(expected["norms"], rel=1e-5)
    assert found["losses"] == pytest.approx(expected["losses"], rel=1e-5)
