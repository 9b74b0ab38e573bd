"""What every strategy does alike, on one suite."""

import logging
import os
import unittest.mock
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffload, MixedPrecision, MixedPrecisionPolicy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from notebook_accel import (
    Accelerator,
    FullyShardedDataParallelPlugin,
    PartialState,
    RankError,
    TorchDynamoPlugin,
    TorchTensorParallelPlugin,
)
from notebook_accel.errors import ConfigurationError
from notebook_accel.train import strategies
from notebook_accel.train.data.prepare import prepare_data_loader
from tests.train.conftest import Cases, Ranks

pytestmark = pytest.mark.early


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + self.down(torch.relu(self.up(inputs)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(4, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            inputs = block(inputs)
        return self.head(inputs)


def fsdp(**options: Any) -> dict[str, Any]:
    return {"fsdp_plugin": FullyShardedDataParallelPlugin(**options)}


BLOCKS = {"auto_wrap_policy": "transformer_based_wrap", "transformer_cls_names_to_wrap": ["Block"]}


def tensor_parallel(up: str = "blocks.*.up", down: str = "blocks.*.down") -> dict[str, Any]:
    # Imported by the ranks, and not by each worker that collects tests: it takes a second.
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

    plan = {up: ColwiseParallel(), down: RowwiseParallel()}
    return {"torch_tp_plugin": TorchTensorParallelPlugin(tp_size=2, plan=plan)}


def by_block() -> dict[str, Any]:
    return {"dynamo_plugin": TorchDynamoPlugin(backend="aot_eager", use_regional_compilation=True)}


STRATEGIES: dict[str, Callable[[], dict[str, Any]]] = {
    "plain": dict,
    "fsdp": fsdp,
    "fsdp by block": lambda: fsdp(**BLOCKS),
    "fsdp by size": lambda: fsdp(auto_wrap_policy="size_based_wrap", min_num_params=40),
    "fsdp, gradients only": lambda: fsdp(sharding_strategy="SHARD_GRAD_OP", **BLOCKS),
    "fsdp in each machine": lambda: fsdp(sharding_strategy="HYBRID_SHARD"),
    "fsdp, recomputing": lambda: fsdp(activation_checkpointing=True, **BLOCKS),
    "fsdp, recomputing from host memory": lambda: fsdp(
        activation_checkpointing=True, activation_checkpointing_offload=True, **BLOCKS
    ),
    "fsdp, in host memory": lambda: fsdp(cpu_offload=True),
    "fsdp, as for FSDP1": lambda: fsdp(
        auto_wrap_policy=ModuleWrapPolicy({Block}), cpu_offload=CPUOffload(True), sync_module_states=True
    ),
    "compiled by block": lambda: by_block(),
    "fsdp, compiled by block": lambda: {**by_block(), **fsdp(**BLOCKS)},
    "tensor parallel": tensor_parallel,
    "tensor parallel, by names": lambda: {
        "torch_tp_plugin": TorchTensorParallelPlugin(tp_size=2, plan={"*.*.up": "colwise", "*.*.down": "rowwise"})
    },
}
"""By name, what makes the arguments of an Accelerator."""


def trained(strategy: str, clip: bool) -> dict[str, Any]:
    """Two steps on the same samples on all ranks; each rank begins with weights of its own."""
    from torch.distributed.tensor import DTensor

    accelerator = Accelerator(**STRATEGIES[strategy]())
    torch.manual_seed(accelerator.process_index)
    net = Net()
    optimizer = torch.optim.AdamW([{"params": net.head.parameters()}, {"params": net.blocks.parameters()}], lr=0.1)
    model, prepared = accelerator.prepare(net, optimizer)
    norms, inputs = [], torch.ones(2, 4)
    for _ in range(2):
        with accelerator.accumulate(model):
            accelerator.backward(model(inputs).square().mean())
            accelerator.clip_grad_value_(model.parameters(), 0.3 if clip else 1e9)
            norms.append(accelerator.clip_grad_norm_(model.parameters(), 0.5 if clip else 1e9).item())
            prepared.step()
            prepared.zero_grad()
    state = accelerator.get_state_dict(model)
    return {
        "type": accelerator.distributed_type.value,
        "own": type(accelerator.unwrap_model(model)).__name__.removeprefix("FSDP"),
        "again": accelerator.prepare(model) is model and accelerator.prepare(net) is model,
        "optimizer": accelerator.prepare(optimizer) is prepared is accelerator.prepare(prepared),
        "norms": norms,
        "plain": not any(isinstance(each, DTensor) for each in state.values()),
        "weights": {name: each.tolist() for name, each in state.items()},
    }


@pytest.fixture(scope="module")
def alone() -> Cases:
    return Cases({clip: (trained, "plain", clip) for clip in (False, True)}, size=1)


RUNS = [
    *((name, 2, True) for name in STRATEGIES),
    *((name, 2, False) for name in ("plain", "fsdp", "tensor parallel")),
    *((name, 1, True) for name in ("plain", "fsdp", "fsdp by block", "fsdp, in host memory", "compiled by block")),
]
"""The strategies, the number of ranks, and whether gradients are clipped."""


@pytest.fixture(scope="module")
def on_ranks() -> dict[int, Cases]:
    """Every strategy, by the number of ranks."""
    found: dict[int, dict[Any, Any]] = {1: {}, 2: {}}
    for name, size, clip in RUNS:
        found[size][name, clip] = (trained, name, clip)
    return {size: Cases(cases, size=size) for size, cases in found.items()}


@pytest.mark.parametrize(("name", "size", "clip"), RUNS)
def test_every_strategy_trains_as_one_device_does(
    name: str, size: int, clip: bool, alone: Cases, on_ranks: dict[int, Cases]
) -> None:
    """The first of each number of ranks is long: one launch trains all strategies."""
    found, expected = on_ranks[size][name, clip][0], alone[clip][0]
    assert found["own"] == "Net"
    assert found["again"]
    assert found["optimizer"]
    assert found["plain"]
    assert found["norms"] == pytest.approx(expected["norms"], rel=1e-5)
    assert found["weights"].keys() == expected["weights"].keys()
    for weight, tensor in expected["weights"].items():
        torch.testing.assert_close(torch.tensor(found["weights"][weight]), torch.tensor(tensor), atol=1e-6, rtol=1e-5)


def test_the_table_ends_with_a_strategy_for_everyone() -> None:
    assert [row.module for row in strategies.TABLE] == [
        "xla",
        "mesh_parallel",
        "ddp",
        "single",
    ]
    here = [row for row in strategies.TABLE if row.module != "xla"]  # which needs torch_xla
    assert all(issubclass(row.load(), strategies.Strategy) for row in here)


def shared_data() -> Any:
    accelerator = Accelerator(**tensor_parallel())
    loader = torch.utils.data.DataLoader(torch.arange(7), batch_size=2)
    model, loader = accelerator.prepare(Net(), loader)
    seen = [accelerator.gather_for_metrics(batch).tolist() for batch in loader]
    accelerator.backward(model(torch.ones(2, 4) * (1 + accelerator.state.sharing.data.rank)).sum())
    norm = accelerator.clip_grad_norm_(model.parameters(), 1.0).item()
    return seen, accelerator.gather(torch.tensor(accelerator.process_index)).tolist(), norm


def rows_held(sharding: str, machines: int) -> list[float]:
    """The rows of a layer that this rank keeps, where the ranks are those of so many machines."""
    here = int(os.environ["WORLD_SIZE"]) // machines
    with unittest.mock.patch.dict(os.environ, LOCAL_WORLD_SIZE=str(here)):
        accelerator = Accelerator(**fsdp(sharding_strategy=sharding))
    layer = nn.Linear(1, 8, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.arange(8.0)[:, None])
    [weight] = accelerator.prepare(layer).parameters()
    return weight.to_local().flatten().tolist()


def made_here(machines: int) -> list[float]:
    """What this rank keeps of a layer that was made without weights, where each rank draws other numbers."""
    here = int(os.environ["WORLD_SIZE"]) // machines
    with unittest.mock.patch.dict(os.environ, LOCAL_WORLD_SIZE=str(here)):
        accelerator = Accelerator(**fsdp(sharding_strategy="HYBRID_SHARD"))
    with torch.device("meta"):
        layer = nn.Linear(1, 8, bias=False)
    torch.manual_seed(accelerator.process_index)
    [weight] = accelerator.prepare(layer).parameters()
    return weight.to_local().flatten().tolist()


def shares(names: tuple[str, ...]) -> list[int]:
    """The first samples that this rank reads, where a mesh of the user's says which ranks share them."""
    PartialState()  # joins the group
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=names)
    loader = prepare_data_loader(torch.utils.data.DataLoader(torch.arange(8), batch_size=1), torch_device_mesh=mesh)
    return [batch.item() for batch in loader]


PLACED = [(rows_held, "FULL_SHARD", 2), (rows_held, "HYBRID_SHARD", 2), (rows_held, "HYBRID_SHARD", 1)]
SHARED = [(shares, ("dp_replicate", "dp_shard")), (shares, ("dp", "tp")), (shares, ("tp", "dp"))]


@pytest.fixture(scope="module")
def on_four() -> Cases:
    return Cases({call: call for call in ((shared_data,), (made_here, 2), *PLACED, *SHARED)}, size=4)


def test_replicas_of_a_model_without_storage_get_the_same_weights(on_four: Cases) -> None:
    first, second, *others = on_four[made_here, 2]
    assert others == [first, second]
    assert first != second


def test_each_rank_holds_its_own_shards(on_four: Cases) -> None:
    full, hybrid, on_one_machine = (on_four[call] for call in PLACED)
    assert full == on_one_machine == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert hybrid == [[0, 1, 2, 3], [4, 5, 6, 7]] * 2, "each machine has all shards"


def test_ranks_read_the_samples_of_their_coordinates_in_a_mesh(on_four: Cases) -> None:
    replicated, layers_within, layers_across = (on_four[call] for call in SHARED)
    assert replicated == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert layers_within == [[0, 2, 4, 6], [0, 2, 4, 6], [1, 3, 5, 7], [1, 3, 5, 7]]
    assert layers_across == [[0, 2, 4, 6], [1, 3, 5, 7]] * 2


def test_ranks_that_share_layers_get_the_same_samples(on_four: Cases) -> None:
    found = on_four[(shared_data,)]
    assert [seen for seen, _, _ in found] == [[[0, 1, 2, 3], [4, 5, 6]]] * 4
    assert [gathered for _, gathered, _ in found] == [[0, 2], [1, 3], [0, 2], [1, 3]]
    assert len({norm for _, _, norm in found}) == 1


def low_precision(strategy: str) -> list[str]:
    accelerator = Accelerator(mixed_precision="bf16", **STRATEGIES[strategy]())
    torch.manual_seed(0)
    model, optimizer = accelerator.prepare(net := Net(), torch.optim.SGD(net.parameters(), lr=0.1))
    outputs = model(torch.ones(2, 4))
    accelerator.backward(outputs.sum())
    kept = [next(model.parameters()).dtype, next(model.parameters()).grad.dtype]
    optimizer.step()
    return [str(each) for each in (outputs.dtype, *kept)]


IN_BF16 = ["plain", "fsdp", "fsdp by block", "fsdp, recomputing", "fsdp, in host memory", "fsdp, as for FSDP1"]


POLICIES: dict[str, Any] = {
    "a policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16),
    "arguments": {"param_dtype": torch.bfloat16, "output_dtype": torch.float16},
    "a precision": "bf16",
    "one for FSDP1": MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
}
"""What `mixed_precision_policy` may be, and the types of the outputs that follow."""
OUTPUTS = {"a policy": "bfloat16", "arguments": "float16", "a precision": "float32", "one for FSDP1": "bfloat16"}


def outputs_of(policy: str) -> str:
    model = Accelerator(**fsdp(mixed_precision_policy=POLICIES[policy])).prepare(Net())
    return str(model(torch.ones(2, 4)).dtype).removeprefix("torch.")


@pytest.fixture(scope="module")
def in_bf16() -> Cases:
    policies = {("policy", name): (outputs_of, name) for name in POLICIES}
    return Cases(
        {
            "averaged": (averaged,),
            **{("clipped", averaged): (clipped_beside_others, averaged) for averaged in (False, True)},
            **{name: (low_precision, name) for name in IN_BF16},
            **policies,
        }
    )


@pytest.mark.parametrize("name", POLICIES)
def test_the_precision_of_a_sharded_model_can_be_given(name: str, in_bf16: Cases) -> None:
    """The first is long: one launch trains in each precision."""
    assert in_bf16["policy", name] == [OUTPUTS[name]] * 2


@pytest.mark.parametrize("name", IN_BF16)
def test_weights_and_gradients_stay_in_float32_under_bf16(name: str, in_bf16: Cases) -> None:
    assert in_bf16[name] == [["torch.float32"] * 3] * 2


def averaged() -> float:
    """The mean of two gradients, which bf16 can tell apart from neither half of the first."""
    accelerator = Accelerator(mixed_precision="bf16", **fsdp())
    model = accelerator.prepare(nn.Linear(1, 1, bias=False))
    accelerator.backward(model(torch.tensor([[2.0**-10 if accelerator.process_index else 1.0]])).sum())
    [weight] = model.parameters()
    return weight.grad.full_tensor().item()


def test_gradients_of_shards_add_up_in_float32_under_bf16(in_bf16: Cases) -> None:
    assert in_bf16["averaged"] == [0.5 + 2.0**-11] * 2


def clipped_beside_others(averaged: bool) -> tuple[float, float, float]:
    """The norm of gradients of which this rank's own are a part, what it should be, and what it has become."""
    from torch.distributed.tensor import DTensor

    accelerator = Accelerator(**fsdp(ignored_modules="head"))
    model = accelerator.prepare(Net())
    accelerator.backward(model(torch.full((2, 4), 3.0 + accelerator.process_index)).sum())
    if averaged:
        for parameter in model.head.parameters():
            parameter.grad = accelerator.reduce(parameter.grad, "mean")

    def squares() -> float:
        own, shared = torch.tensor(0.0), 0.0
        for each in (parameter.grad for parameter in model.parameters()):
            if isinstance(each, DTensor):
                shared += each.full_tensor().square().sum().item()
            else:
                own += each.square().sum()
        return shared + (own if averaged else accelerator.reduce(own)).item()

    before = squares()
    norm = accelerator.clip_grad_norm_(model.parameters(), 0.5).item()
    return norm, before**0.5, squares() ** 0.5


@pytest.mark.parametrize("averaged", [False, True])
def test_all_ranks_scale_by_one_factor_beside_gradients_of_their_own(averaged: bool, in_bf16: Cases) -> None:
    first, second = in_bf16["clipped", averaged]
    assert first == pytest.approx((first[1], first[1], 0.5))
    assert second == pytest.approx(first)


def on_rank_0_only(tied: bool) -> tuple[float, int]:
    """The loss of a model that only rank 0 has the weights of, after a step; and how many of its weights are tied."""
    accelerator = Accelerator(**fsdp(cpu_ram_efficient_loading=True, **BLOCKS))
    with torch.device("cpu" if accelerator.is_main_process else "meta"):
        net = Net()
    if tied:
        net.again = nn.Linear(4, 1)
        net.again.weight = net.head.weight
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(net, optimizer)
    for _ in range(2):
        loss = model(torch.ones(2, 4)).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    return loss.item(), len([*net.parameters()])


@pytest.mark.parametrize("tied", [False, True])
def test_other_ranks_need_no_weights_of_their_own(tied: bool, ranks: Ranks) -> None:
    [alone], both = ranks(on_rank_0_only, tied, size=1), ranks(on_rank_0_only, tied)
    assert both == [pytest.approx(alone, rel=1e-5)] * 2


def tied_by_size() -> list[float]:
    """The losses of a model whose largest layers share their weights, which `size_based_wrap` would take apart."""
    accelerator = Accelerator(**fsdp(auto_wrap_policy="size_based_wrap", min_num_params=20))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 4), nn.Linear(4, 5, bias=False))
    net[2].weight = net[0].weight
    model, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1))
    losses = []
    for _ in range(3):
        losses.append(loss := model(torch.arange(5)).square().mean())
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    return torch.stack(losses).tolist()


def test_tied_layers_are_sharded_together(ranks: Ranks) -> None:
    [alone], both = ranks(tied_by_size, size=1), ranks(tied_by_size)
    assert both == [pytest.approx(alone, rel=1e-5)] * 2
    assert alone[2] < alone[0]


def ignoring(freeze: bool) -> tuple[list[str], list[list[float]], str]:
    """The layers that are sharded; the ignored weights on all ranks, which only rank 0 had; and what is said."""
    from torch.distributed.tensor import DTensor

    said: list[str] = []
    logger = logging.getLogger("notebook_accel.train.strategies.mesh_parallel")
    logger.addFilter(lambda record: bool(said.append(record.getMessage())))
    plugin = {"ignored_modules": "head", "cpu_ram_efficient_loading": True, **BLOCKS}
    accelerator = Accelerator(**fsdp(**plugin))
    with torch.device("cpu" if accelerator.is_main_process else "meta"):
        net = Net()
    net.head.requires_grad_(not freeze)
    model = accelerator.prepare(net)
    model(torch.ones(2, 4)).sum().backward()
    sharded = [name for name, each in model.named_parameters() if isinstance(each, DTensor)]
    return sharded, accelerator.gather(net.head.weight.detach()).tolist(), "".join(said)


def test_ignored_modules_stay_whole_and_are_named_if_ranks_would_train_their_own(ranks: Ranks) -> None:
    frozen, trained = ranks(ignoring, True), ranks(ignoring, False)
    for sharded, (first, second), _ in (*frozen, *trained):
        assert sharded == [name for name, _ in Net().named_parameters() if not name.startswith("head")]
        assert first == second
    assert [said for _, _, said in frozen] == ["", ""]
    assert "nothing averages the gradients of head.weight, head.bias over the ranks" in trained[0][2]


def made_on_meta() -> bool:
    with torch.device("meta"):
        net = Net()
    accelerator = Accelerator(**fsdp(**BLOCKS))
    torch.manual_seed(accelerator.process_index)
    model = accelerator.prepare(net)
    return bool(model(torch.ones(1, 4)).isfinite().all())


def test_a_model_without_storage_gets_it_in_shards(ranks: Ranks) -> None:
    assert ranks(made_on_meta) == [True, True]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Accelerator(torch_tp_plugin=TorchTensorParallelPlugin(tp_size=2)), "needs a plan"),
        (lambda: Accelerator(**tensor_parallel()), "tp_size=2 does not divide the 1 ranks"),
        (lambda: Accelerator(**tensor_parallel(), **fsdp()), "fsdp_plugin has no effect"),
        (lambda: Accelerator(deepspeed_plugin=object()), "must be a DeepSpeedPlugin of notebook_accel"),
        (lambda: fsdp(fsdp_version=1), "only FSDP2 is supported"),
        (lambda: fsdp(sharding_strategy="NO_SHARD"), "leave the plugin out to use DDP"),
        (lambda: fsdp(sharding_strategy="SOME"), "is not a strategy"),
        (lambda: fsdp(backward_prefetch="BACKWARD_POST"), "would have no effect"),
        (lambda: fsdp(use_orig_params=False), "would have no effect"),
        (lambda: fsdp(activation_checkpointing_offload=True), "without activation_checkpointing=True"),
        (lambda: fsdp(min_num_params=3), "min_num_params has no effect"),
        (lambda: fsdp(auto_wrap_policy="other"), "must be one of transformer_based_wrap"),
        (lambda: fsdp(state_dict_type="LOCAL"), "must be one of FULL_STATE_DICT"),
    ],
)
def test_options_that_cannot_be_followed_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        make()
    assert message in str(refused.value)


def prepared(make: Callable[..., dict[str, Any]], options: dict[str, Any]) -> None:
    Accelerator(**make(**options)).prepare(Net())


def stepped_before() -> None:
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    Accelerator(**fsdp()).prepare(net, optimizer)


def normed_layers() -> None:
    net = Net()
    nn.utils.parametrizations.weight_norm(net.blocks[0].up)
    Accelerator(**tensor_parallel()).prepare(net)


def joined() -> None:
    accelerator = Accelerator(**fsdp())
    with accelerator.join_uneven_inputs([accelerator.prepare(Net())]):
        pass


def refusal(call: Any, *arguments: Any) -> str:
    try:
        call(*arguments)
    except ConfigurationError as error:
        return str(error)
    return "it is not refused"


UNSHARDABLE: dict[str, Any] = {
    "the model has no layer of class Blok": (prepared, fsdp, {"transformer_cls_names_to_wrap": ["Blok"]}),
    "auto_wrap_policy chooses none": (prepared, fsdp, {"activation_checkpointing": True}),
    "'bloks'": (prepared, tensor_parallel, {"up": "bloks"}),
    "'blocks.0.up', whose weights are computed from others": (normed_layers,),
    "already made a step can't be sharded": (stepped_before,),
    "join_uneven_inputs does not work": (joined,),
}
"""By what is said of them."""


@pytest.fixture(scope="module")
def refusals() -> Cases:
    return Cases({message: (refusal, *call) for message, call in UNSHARDABLE.items()})


@pytest.mark.parametrize("message", UNSHARDABLE)
def test_what_cannot_be_sharded_is_refused(message: str, refusals: Cases) -> None:
    assert all(message in told for told in refusals[message])


def test_a_refusal_on_the_ranks_is_the_cause_of_what_the_launch_raises(ranks: Ranks) -> None:
    with pytest.raises(RankError) as failed:
        ranks(stepped_before)
    assert isinstance(failed.value.__cause__, ConfigurationError)
