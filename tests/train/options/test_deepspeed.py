"""`DeepSpeedPlugin` trains as FSDP2 does with the same settings, to the last bit."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from notebook_accel import Accelerator, DeepSpeedPlugin, DistributedType, FullyShardedDataParallelPlugin, set_seed
from notebook_accel.errors import ConfigurationError
from tests.train.conftest import Cases, Ranks

CONFIG = {
    "zero_optimization": {"stage": 3, "overlap_comm": True},
    "gradient_clipping": "auto",
    "gradient_accumulation_steps": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "bf16": {"enabled": "auto"},
}


def trained(max_norm: float | None = None, **options: Any) -> list[float]:
    """The weights after some steps; `max_norm` is that of the program's own clipping."""
    set_seed(0)
    accelerator = Accelerator(cpu=True, **options)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    loader = DataLoader(TensorDataset(torch.randn(32, 4), 9 * torch.randn(32, 1)), 2)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), 0.1), loader)
    for inputs, targets in loader:
        with accelerator.accumulate(model):
            accelerator.backward(nn.functional.mse_loss(model(inputs), targets))
            if max_norm is not None and accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), max_norm)
            optimizer.step()
            optimizer.zero_grad()
    if accelerator.num_processes > 1:
        expected = DistributedType.FSDP if accelerator.is_fsdp2 else DistributedType.MULTI_CPU
        assert accelerator.distributed_type == expected
    state = accelerator.get_state_dict(model)
    return torch.cat([each.flatten() for each in state.values()]).tolist() if state else []


def sharded(**options: Any) -> dict[str, Any]:
    return {"fsdp_plugin": FullyShardedDataParallelPlugin(**options)}


def both(own: dict[str, Any], max_norm: float, plugin: Callable[..., Any], **options: Any) -> tuple[Any, Any]:
    """What a program trains without DeepSpeed and with it, one after the other."""
    expected = trained(max_norm, **copy.deepcopy(own))
    Accelerator().end_training()
    return expected, trained(deepspeed_plugin=plugin(), **options)


SAME: dict[str, tuple[Any, ...]] = {
    "stage 0": ({}, 1.0, lambda: DeepSpeedPlugin(zero_stage=0)),
    "stage 1": (sharded(reshard_after_forward=False), 1.0, lambda: DeepSpeedPlugin(zero_stage=1)),
    "default": (sharded(reshard_after_forward=False), 1.0, DeepSpeedPlugin),
    "stage 3, clipped": (sharded(), 0.01, lambda: DeepSpeedPlugin(zero_stage=3, gradient_clipping=0.01)),
    "offloaded": (sharded(cpu_offload=True), 1.0, lambda: DeepSpeedPlugin(zero_stage=3, offload_param_device="cpu")),
    "configured": (sharded(), 0.05, lambda: DeepSpeedPlugin(hf_ds_config=CONFIG, gradient_clipping=0.05)),
    "accumulating": (
        {**sharded(), "gradient_accumulation_steps": 2},
        1.0,
        lambda: DeepSpeedPlugin(zero_stage=3, gradient_accumulation_steps=2),
    ),
    "in bf16": (
        {**sharded(), "mixed_precision": "bf16"},
        1.0,
        lambda: DeepSpeedPlugin(hf_ds_config={**CONFIG, "bf16": {"enabled": True}}),
    ),
}


@pytest.fixture(scope="module")
def on_two() -> Cases:
    return Cases({name: (both, *case) for name, case in SAME.items()})


@pytest.mark.parametrize("name", SAME)
def test_the_plugin_trains_as_the_same_program_without_it(name: str, on_two: Cases) -> None:
    (expected, found), _ = on_two[name]
    assert expected
    assert found == expected


def test_a_clipping_of_the_launch_is_that_of_the_program(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = ranks(trained, 0.01)
    monkeypatch.setenv("NOTEBOOK_ACCEL_GRADIENT_CLIPPING", "0.01")
    assert ranks(trained) == expected
    weights, _ = ranks(trained, 0.01)
    assert weights == pytest.approx(expected[0], rel=1e-3)  # a program that clips, too, clips hardly further


def test_a_configuration_comes_from_a_file_too(tmp_path: Path) -> None:
    (tmp_path / "zero.json").write_text(json.dumps(CONFIG))
    plugin = DeepSpeedPlugin(hf_ds_config=tmp_path / "zero.json")
    assert plugin == DeepSpeedPlugin(hf_ds_config=tmp_path / "zero.json")
    assert (plugin.zero_stage, plugin.gradient_clipping, plugin.gradient_accumulation_steps) == (3, 1.0, "auto")
    assert plugin.deepspeed_config["zero_optimization"]["stage"] == 3
    assert CONFIG["gradient_clipping"] == "auto"


def test_one_line_says_what_is_done_and_what_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    accelerator = Accelerator(cpu=True, deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=CONFIG))
    [line] = [each.getMessage() for each in caplog.records]
    assert line == (
        "ZeRO stage 3 of DeepSpeed runs as FSDP2 (fsdp_reshard_after_forward: True), gradient_clipping: 1. Left out, "
        "because the results don't depend on it: zero_optimization.overlap_comm"
    )
    assert accelerator.deepspeed_plugin is None  # so that libraries take the branch of FSDP


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DeepSpeedPlugin(hf_ds_config=CONFIG, zero_stage=2), "zero_stage=2 contradicts hf_ds_config"),
        (lambda: DeepSpeedPlugin(hf_ds_config=CONFIG, offload_param_device="cpu"), "no effect beside hf_ds_config"),
        (lambda: DeepSpeedPlugin(hf_ds_config=3), "must be a dict, or the path"),
        (lambda: DeepSpeedPlugin(hf_ds_config={"fp16": {}}), "has no section zero_optimization"),
        (lambda: DeepSpeedPlugin(offload_param_device="nvme"), "nvme has no counterpart"),
        (lambda: DeepSpeedPlugin(enable_msamp=True), "mixed_precision='fp8'"),
        (lambda: Accelerator(deepspeed_plugin=DeepSpeedPlugin(), **sharded()), "were both given"),
        (lambda: Accelerator(deepspeed_plugins={"one": DeepSpeedPlugin()}), "deepspeed_plugins is not supported"),
        (
            lambda: Accelerator(
                deepspeed_plugin=DeepSpeedPlugin(gradient_accumulation_steps=2), gradient_accumulation_steps=4
            ),
            "gradient_accumulation_steps=4 contradicts deepspeed_plugin, which has 2",
        ),
        (
            lambda: Accelerator(
                deepspeed_plugin=DeepSpeedPlugin({**CONFIG, "bf16": {"enabled": True}}), mixed_precision="fp16"
            ),
            "mixed_precision='fp16' contradicts deepspeed_plugin",
        ),
    ],
)
def test_what_can_not_work_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()
