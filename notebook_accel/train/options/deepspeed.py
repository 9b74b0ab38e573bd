"""The plugin for DeepSpeed with Accelerate's options: what they mean for FSDP2, which trains in DeepSpeed's place."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from notebook_accel.config import deepspeed
from notebook_accel.errors import ConfigurationError
from notebook_accel.train.options.fsdp import FullyShardedDataParallelPlugin
from notebook_accel.train.options.option_class import option_class

_ONLY_DEEPSPEED = ("is_train_batch_min", "enable_msamp", "msamp_opt_level", "transformer_moe_cls_names")
"""Fields without an effect here."""


@option_class("deepspeed_plugin={}")
@dataclass
class DeepSpeedPlugin:
    """A configuration of DeepSpeed's ZeRO, which FSDP2 follows: the results are those of the same program under FSDP2.

    Stages 1 and 2 keep the parameters whole between the forward and the backward pass, and stage 3 shards them again.
    Stage 0 is DDP. What the results don't depend on is left out, and a message lists it.

    Raises:
        ConfigurationError: Something has no counterpart, such as offloading to NVMe, or an optimizer in the
            configuration.
    """

    hf_ds_config: Any = None
    """DeepSpeed's own configuration: a dict, or the path of a JSON file. Then the other fields are taken from it."""
    gradient_accumulation_steps: int | str | None = None
    """`None` or `auto`: that of the `Accelerator`."""
    gradient_clipping: float | str | None = None
    """The greatest norm of the gradients, to which each step clips them. `None` and `auto`: 1.0, as in Accelerate."""
    zero_stage: int | None = None
    """0 to 3; `None`: 2."""
    is_train_batch_min: bool = True
    offload_optimizer_device: str | None = None
    """`cpu` keeps parameters, gradients, and optimizer states in the host's memory."""
    offload_param_device: str | None = None
    """The same."""
    offload_optimizer_nvme_path: str | None = None
    offload_param_nvme_path: str | None = None
    zero3_init_flag: bool | None = None
    zero3_save_16bit_model: bool | None = None
    transformer_moe_cls_names: str | None = None
    enable_msamp: bool | None = None
    msamp_opt_level: str | None = None

    def __post_init__(self) -> None:
        given = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in _ONLY_DEEPSPEED}
        if self.enable_msamp:
            raise ConfigurationError("enable_msamp=True: fp8 uses torchao, so pass mixed_precision='fp8' instead")
        self.deepspeed_config = self._config(given)
        """The configuration in DeepSpeed's own form."""
        self.translation = deepspeed.translate(self.deepspeed_config)
        self.zero_stage = self.translation.stage
        self.gradient_clipping = self.deepspeed_config["gradient_clipping"] = self.translation.clipping or 0.0
        self.gradient_accumulation_steps = self.translation.accumulation_steps or "auto"

    def fsdp_plugin(self) -> FullyShardedDataParallelPlugin | None:
        """What FSDP2 does; `None` for stage 0."""
        keys = self.translation.fsdp
        if not keys:
            return None
        return FullyShardedDataParallelPlugin(
            reshard_after_forward=keys["fsdp_reshard_after_forward"], cpu_offload=keys.get("fsdp_offload_params")
        )

    @staticmethod
    def _config(given: dict[str, Any]) -> dict[str, Any]:
        source = given.pop("hf_ds_config")
        if source is None or source == "none":
            return deepspeed.of_options({name: value for name, value in given.items() if value is not None})
        if isinstance(source, Mapping):
            found = deepspeed.of_deepspeed(copy.deepcopy(source), "hf_ds_config")
        elif isinstance(source, (str, os.PathLike)):
            found = deepspeed.read(source)
        else:
            raise ConfigurationError(f"hf_ds_config={source!r:.80} must be a dict, or the path of a JSON file")
        zero = found["zero_optimization"] = dict(found["zero_optimization"])
        for name, (place, key) in {
            "gradient_accumulation_steps": (found, "gradient_accumulation_steps"),
            "gradient_clipping": (found, "gradient_clipping"),
            "zero_stage": (zero, "stage"),
        }.items():
            value = given.pop(name)
            if value is None:
                continue
            if place.get(key, "auto") not in ("auto", value):
                raise ConfigurationError(
                    f"{name}={value!r} contradicts hf_ds_config, which has {key}: {place[key]!r}. Give one of them."
                )
            place[key] = value
        beside = [name for name, value in given.items() if value is not None and name != "zero3_init_flag"]
        if beside:
            raise ConfigurationError(f"{', '.join(beside)} would have no effect beside hf_ds_config: set it there")
        return found
