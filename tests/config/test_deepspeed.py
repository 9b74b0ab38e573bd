"""A configuration of DeepSpeed's is translated to FSDP2, in each interface, or refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from notebook_accel.cli.launch import options
from notebook_accel.config import LaunchConfig, deepspeed, file
from notebook_accel.config.layers import merge
from notebook_accel.errors import ConfigurationError

TUNED = {"allgather_bucket_size": 2e8, "overlap_comm": True, "reduce_bucket_size": "auto"}
ZERO3 = {
    "fp16": {"enabled": False, "loss_scale": 64},
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu", "pin_memory": True}, **TUNED},
    "gradient_accumulation_steps": 4,
    "gradient_clipping": 0.5,
    "train_batch_size": "auto",
    "wall_clock_breakdown": False,
    "flops_profiler": {"enabled": False, "profile_step": 1},
}
OFFLOADED = {"fsdp_reshard_after_forward": True, "fsdp_offload_params": True}


def of_file(path: Path, text: str) -> LaunchConfig:
    target = path / "config.yaml"
    target.write_text(f"compute_environment: LOCAL_MACHINE\nnum_processes: 2\n{text}")
    return merge([file.from_file({}, target)])


@pytest.mark.parametrize(("stage", "reshards"), [(1, False), (2, False), (3, True)])
def test_a_stage_of_a_file_becomes_what_fsdp2_does(stage: int, reshards: bool, tmp_path: Path) -> None:
    config = of_file(tmp_path, f"distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: {stage}\n")
    assert config.strategy == "fsdp"
    assert config.fsdp == {"fsdp_reshard_after_forward": reshards}
    assert config.gradient_clipping == 1.0  # as Accelerate fills in a value auto
    assert config.gradient_accumulation_steps == 1
    [line] = config.notices
    assert f"ZeRO stage {stage} of DeepSpeed runs as FSDP2" in line


def test_stage_0_is_ddp(tmp_path: Path) -> None:
    config = of_file(tmp_path, "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 0}\n")
    assert (config.strategy, config.fsdp) == ("ddp", {})


def test_a_file_as_accelerate_writes_it_is_read(tmp_path: Path) -> None:
    config = of_file(
        tmp_path,
        """distributed_type: DEEPSPEED
deepspeed_config:
  deepspeed_multinode_launcher: standard
  gradient_accumulation_steps: 2
  gradient_clipping: 0.7
  offload_optimizer_device: cpu
  offload_param_device: none
  zero3_init_flag: true
  zero3_save_16bit_model: false
  zero_stage: 2
""",
    )
    assert config.fsdp == {"fsdp_reshard_after_forward": False, "fsdp_offload_params": True}
    assert (config.gradient_accumulation_steps, config.gradient_clipping) == (2, 0.7)
    assert config.notices[0].endswith("depend on it: deepspeed_multinode_launcher, zero3_init_flag")


def test_a_configuration_of_deepspeeds_is_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "zero3.json").write_text(json.dumps(ZERO3))
    config = of_file(
        tmp_path, f"distributed_type: DEEPSPEED\ndeepspeed_config: {{deepspeed_config_file: {tmp_path}/zero3.json}}\n"
    )
    assert (config.fsdp, config.mixed_precision) == (OFFLOADED, "bf16")
    assert (config.gradient_accumulation_steps, config.gradient_clipping) == (4, 0.5)
    left_out = config.notices[0].rpartition(": ")[2]
    assert left_out == (
        "zero_optimization.offload_param.pin_memory, zero_optimization.allgather_bucket_size, "
        "zero_optimization.overlap_comm"
    )


def test_the_command_line_says_the_same_as_the_file(tmp_path: Path) -> None:
    (tmp_path / "zero3.json").write_text(json.dumps(ZERO3))
    given = {"use_deepspeed": True, "deepspeed_config_file": str(tmp_path / "zero3.json")}
    config = options.merged(given, [])
    assert (config.strategy, config.fsdp, config.mixed_precision) == ("fsdp", OFFLOADED, "bf16")
    given = {"use_deepspeed": True, "zero_stage": "2", "gradient_clipping": "0.3", "gradient_accumulation_steps": "2"}
    config = options.merged(given, [])
    assert (config.fsdp, config.gradient_clipping) == ({"fsdp_reshard_after_forward": False}, 0.3)
    assert config.gradient_accumulation_steps == 2
    assert config.cite("strategy") == " (from --use_deepspeed)"


def test_options_for_deepspeed_need_it_and_exclude_the_ones_for_fsdp() -> None:
    with pytest.raises(ConfigurationError, match="--zero_stage has no effect without --use_deepspeed"):
        options.merged({"zero_stage": "2"}, [])
    with pytest.raises(ConfigurationError, match="--use_deepspeed and --use_fsdp exclude each other"):
        options.merged({"use_deepspeed": True, "use_fsdp": True}, [])


def test_a_value_auto_is_what_accelerate_puts_in_its_place() -> None:
    found = deepspeed.translate(
        {
            "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "auto"}},
            "bf16": {"enabled": "auto"},
            "fp16": {"enabled": "auto"},
            "gradient_accumulation_steps": "auto",
            "gradient_clipping": "auto",
            "train_micro_batch_size_per_gpu": "auto",
        }
    )
    assert found == deepspeed.Translation(2, {"fsdp_reshard_after_forward": False}, None, None, 1.0, ())


def zero(**more: Any) -> dict[str, Any]:
    return {"zero_optimization": {"stage": 2, **more}}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (zero(offload_param={"device": "nvme"}), "offload_param.device: nvme has no counterpart"),
        (zero(offload_param={"device": "disk"}), "must be cpu or none"),
        (zero(mics_shard_size=4), "mics_shard_size: 4 of DeepSpeed.*dp_replicate_size"),
        (zero(zero_quantized_gradients=True), "zero_quantized_gradients: True .*reduce_dtype"),
        (zero(stage3_new=True, zenflow={"topk_ratio": 0.1}), "zenflow.topk_ratio: 0.1 .* leave it out"),
        (zero() | {"optimizer": {"type": "AdamW", "params": {"lr": "auto"}}}, "optimizer.type: .* torch's own optim"),
        (zero() | {"scheduler": {"type": "WarmupLR"}}, "scheduler.type: .* torch's own scheduler"),
        (zero() | {"amp": {"enabled": True}}, "amp.enabled: True .* mixed_precision"),
        (zero() | {"fp16": {"enabled": True}, "bf16": {"enabled": True}}, "contradict each other"),
        (zero() | {"fp16": {"enabled": True, "loss_scale": 128}}, "fp16.loss_scale: 128 .* write 0"),
        (zero() | {"steps_per_prin": 10}, "steps_per_prin: 10 .* did you mean steps_per_print"),
        (zero() | {"gradient_clipping": "some"}, "gradient_clipping: 'some' must be a number"),
        (zero() | {"gradient_accumulation_steps": 1.5}, "gradient_accumulation_steps: 1.5 must be a whole number"),
        ({"zero_optimization": {"stage": 4}}, "stage: 4 must be 0, 1, 2, or 3"),
        ({"zero_optimization": {"stage": 0, "cpu_offload": True}}, "offloading needs a stage"),
        (
            zero() | {"train_batch_size": 9, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2},
            "train_batch_size: 9 is not",
        ),
    ],
)
def test_what_has_no_counterpart_is_refused_by_name(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        deepspeed.translate(config)


def test_what_can_not_be_read_says_so(tmp_path: Path) -> None:
    for name, text, message in (
        ("no.json", None, "can't be read"),
        ("text.json", "{", "is not JSON"),
        ("other.json", "{}", "has no section zero_optimization"),
    ):
        if text is not None:
            (tmp_path / name).write_text(text)
        with pytest.raises(ConfigurationError, match=message):
            deepspeed.translate_options({"deepspeed_config_file": str(tmp_path / name)})
    (tmp_path / "good.json").write_text(json.dumps(ZERO3))
    with pytest.raises(ConfigurationError, match="zero_stage would have no effect beside deepspeed_config_file"):
        deepspeed.translate_options({"deepspeed_config_file": str(tmp_path / "good.json"), "zero_stage": 2})


def test_another_precision_than_deepspeeds_is_a_contradiction(tmp_path: Path) -> None:
    (tmp_path / "zero3.json").write_text(json.dumps(ZERO3))
    text = f"distributed_type: DEEPSPEED\ndeepspeed_config: {{deepspeed_config_file: {tmp_path}/zero3.json}}\n"
    with pytest.raises(ConfigurationError, match="mixed_precision contradicts deepspeed_config"):
        of_file(tmp_path, f"{text}mixed_precision: fp16\n")
