"""Sequences that ranks share, against the numbers of one rank."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from notebook_accel import Accelerator, ParallelismConfig
from notebook_accel.errors import ConfigurationError
from notebook_accel.utils import TorchTensorParallelConfig
from tests.train.conftest import Cases


class Net(nn.Module):
    """Attention with two heads, causal in the first layer only, over tokens that know their positions."""

    def __init__(self) -> None:
        super().__init__()
        # No biases: the gradient of that of the keys is 0, so AdamW would step by what is lost in rounding.
        names = "qkvo"
        self.layers = nn.ModuleList(
            [nn.ModuleDict({name: nn.Linear(8, 8, bias=False) for name in names}) for _ in range(2)]
        )
        self.head = nn.Linear(8, 1)

    def forward(self, inputs: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        inputs = inputs + positions[..., None].cos()
        for index, layer in enumerate(self.layers):
            q, k, v = (layer[name](inputs).unflatten(-1, (-1, 4)).transpose(1, 2) for name in "qkv")
            found = F.scaled_dot_product_attention(q, k, v, is_causal=index == 0)
            inputs = inputs + layer["o"](found.transpose(1, 2).flatten(2))
        return self.head(inputs).squeeze(-1)


PLAN = {"layers.*.[qkv]": "colwise", "layers.*.o": "rowwise"}
LAYOUTS: dict[str, dict[str, int]] = {
    "cp 4": {"cp_size": 4},
    "replicate 2, cp 2": {"dp_replicate_size": 2, "cp_size": 2},
    "shard 2, cp 2": {"dp_shard_size": 2, "cp_size": 2},
    "cp 2, tp 2": {"cp_size": 2, "tp_size": 2},
}


def trained(sizes: dict[str, int]) -> dict[str, Any]:
    handler = TorchTensorParallelConfig(plan=PLAN) if "tp_size" in sizes else None
    accelerator = Accelerator(parallelism_config=ParallelismConfig(**sizes, tp_handler=handler))
    torch.manual_seed(accelerator.process_index)
    net = Net()
    samples = torch.arange(4 * 8 * 8).reshape(4, 8, 8).sin()
    data = torch.utils.data.TensorDataset(samples, torch.arange(8.0).expand(4, 8), samples.sum(-1).cos())
    ranks = sizes.get("dp_replicate_size", 1) * sizes.get("dp_shard_size", 1)
    loader = torch.utils.data.DataLoader(data, 2 // ranks)
    model, optimizer, loader = accelerator.prepare(net, torch.optim.AdamW(net.parameters(), lr=0.01), loader)
    losses, norms, restored = [], [], []
    for inputs, positions, targets in loader:
        buffers = [inputs, positions, targets]
        with accelerator.maybe_context_parallel(buffers, [1, 1, 1], no_restore_buffers={targets}):
            loss = (model(inputs, positions) - targets).square().mean()
            accelerator.backward(loss)
            norms.append(accelerator.clip_grad_norm_(model.parameters(), 0.1).item())
            optimizer.step()
            optimizer.zero_grad()
        losses.append(accelerator.reduce(loss.detach(), "mean").item())
        restored.append([tuple(each.shape[1:]) for each in buffers])
    weights = {name: each.tolist() for name, each in accelerator.get_state_dict(model).items()}
    return {"losses": losses, "norms": norms, "restored": restored, "weights": weights}


def refused(buffers: list[torch.Tensor], masked: bool) -> str:
    accelerator = Accelerator(parallelism_config=ParallelismConfig(cp_size=4))
    try:
        with accelerator.maybe_context_parallel(buffers, [1]):
            mask = torch.ones(2, 8, dtype=torch.bool) if masked else None
            F.scaled_dot_product_attention(*[buffers[0][:, None]] * 3, attn_mask=mask)
    except ConfigurationError as error:
        return str(error)
    return "it is not refused"


REFUSALS = {
    "pad the sequences to a multiple of 4": (refused, [torch.zeros(1, 6, 8)], False),
    "cannot cut an attention mask": (refused, [torch.zeros(1, 8, 8)], True),
    "2 buffers and 1 buffer_seq_dims": (refused, [torch.zeros(1, 8, 8)] * 2, False),
}
"""By what is said of them."""


@pytest.fixture(scope="module")
def alone() -> Cases:
    return Cases({"plain": (trained, {})}, size=1)


@pytest.fixture(scope="module")
def on_four() -> Cases:
    return Cases({**{name: (trained, sizes) for name, sizes in LAYOUTS.items()}, **REFUSALS}, size=4)


@pytest.mark.parametrize("name", LAYOUTS)
def test_ranks_that_share_sequences_train_as_one_rank_does(name: str, alone: Cases, on_four: Cases) -> None:
    """Four ranks share the cores, and train in each of the layouts: about 15 s."""
    found, expected = on_four[name][0], alone["plain"][0]
    assert found["norms"] == pytest.approx(expected["norms"], rel=1e-5)
    assert found["losses"] == pytest.approx(expected["losses"], rel=1e-5)
    for weight, tensor in expected["weights"].items():
        torch.testing.assert_close(torch.tensor(found["weights"][weight]), torch.tensor(tensor), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", LAYOUTS)
def test_buffers_hold_whole_sequences_again(name: str, on_four: Cases) -> None:
    part = 8 // LAYOUTS[name]["cp_size"]
    assert on_four[name][0]["restored"] == [[(8, 8), (8,), (part,)]] * 2


@pytest.mark.parametrize("message", REFUSALS)
def test_what_ranks_cannot_share_is_refused(message: str, on_four: Cases) -> None:
    assert all(message in found for found in on_four[message])
