"""The plugin for FSDP with Accelerate's options, checked and translated to the arguments of `fully_shard`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from notebook_accel.config import kinds
from notebook_accel.errors import ConfigurationError
from notebook_accel.train.options.option_class import option_class

if TYPE_CHECKING:
    from torch import nn

_STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
WRAPPING = ("transformer_based_wrap", "size_based_wrap", "no_wrap")
STATE_DICTS = ("FULL_STATE_DICT", "SHARDED_STATE_DICT")
# Accelerate's constants, for code that lists the choices.
FSDP_SHARDING_STRATEGY = list(_STRATEGIES)
FSDP_AUTO_WRAP_POLICY = [name.upper() for name in WRAPPING]
FSDP_BACKWARD_PREFETCH = ["BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"]
FSDP_STATE_DICT_TYPE = ["FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT"]
FSDP_MODEL_NAME = "pytorch_model_fsdp"


def _number(name: str, text: str) -> int:
    try:
        return int(float(text))  # Accelerate writes 1e8
    except ValueError:
        raise ConfigurationError(f"FSDP_MIN_NUM_PARAMS and FSDP_VERSION must be numbers, not {text!r}") from None


def _text(name: str, text: str) -> str:
    return text


_VARIABLES: tuple[tuple[str, str, Callable[[str, str], Any]], ...] = (
    ("FSDP_VERSION", "fsdp_version", _number),
    ("FSDP_SHARDING_STRATEGY", "sharding_strategy", lambda _, text: int(text) if text.isdecimal() else text),
    ("FSDP_RESHARD_AFTER_FORWARD", "reshard_after_forward", lambda _, text: kinds.flag.convert(text)),
    ("FSDP_OFFLOAD_PARAMS", "cpu_offload", kinds.flag.parse),
    ("FSDP_AUTO_WRAP_POLICY", "auto_wrap_policy", _text),
    ("FSDP_TRANSFORMER_CLS_TO_WRAP", "transformer_cls_names_to_wrap", lambda _, text: text.split(",")),
    ("FSDP_MIN_NUM_PARAMS", "min_num_params", _number),
    ("FSDP_STATE_DICT_TYPE", "state_dict_type", _text),
    ("FSDP_ACTIVATION_CHECKPOINTING", "activation_checkpointing", kinds.flag.parse),
    ("FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD", "activation_checkpointing_offload", kinds.flag.parse),
    ("FSDP_CPU_RAM_EFFICIENT_LOADING", "cpu_ram_efficient_loading", kinds.flag.parse),
)
"""Each environment variable, the argument that it sets, and its parser, which takes the variable and its text."""


@option_class("fsdp_plugin={}")
@dataclass
class FullyShardedDataParallelPlugin:
    """Shards parameters, gradients and optimizer states over the ranks with torch's FSDP2 (`fully_shard`).

    Code written for FSDP1 works unchanged if FSDP2 has the same feature; an option that would have no effect is an
    error.

    Raises:
        ConfigurationError: An option is not valid, or would have no effect.
    """

    fsdp_version: int | None = None
    """Must be 2, or `None`, which means 2."""
    sharding_strategy: Any = None
    """FSDP 1's name for `reshard_after_forward`: `FULL_SHARD`, `SHARD_GRAD_OP`, `HYBRID_SHARD`."""
    reshard_after_forward: Any = None
    """Whether a layer's parameters are freed after its forward pass and gathered again for its backward pass."""
    backward_prefetch: Any = None
    mixed_precision_policy: Any = None
    """A `MixedPrecisionPolicy`, its arguments, or a precision such as `bf16`; `None`: that of the `Accelerator`."""
    auto_wrap_policy: Any = None
    """`transformer_based_wrap`, `size_based_wrap`, `no_wrap`, a function of a module, or a policy of
    `torch.distributed.fsdp.wrap`."""
    cpu_offload: Any = None
    """Whether parameters, gradients and optimizer states are offloaded to the CPU."""
    ignored_modules: Iterable[nn.Module] | str | None = None
    """The modules that are not sharded, or a regular expression that matches their whole names. Nothing averages the
    gradients of their parameters."""
    state_dict_type: Any = None
    """`SHARDED_STATE_DICT` (the default): each rank writes its shards; `FULL_STATE_DICT`: the main rank writes all, as
    one device would."""
    state_dict_config: Any = None
    """FSDP1's name for `state_dict_type`: a `FullStateDictConfig` or `ShardedStateDictConfig` of torch. Its fields have
    no effect: full states are collected in the memory of rank 0's host."""
    optim_state_dict_config: Any = None
    """The same for optimizers; must not contradict `state_dict_config`."""
    limit_all_gathers: bool = True
    use_orig_params: bool | None = None
    param_init_fn: Callable[[nn.Module], None] | None = None
    """Initializes a module that was made on the meta device."""
    sync_module_states: bool | None = None
    forward_prefetch: bool | None = None
    activation_checkpointing: bool | None = None
    """Whether the wrapped layers' activations are recomputed in the backward pass rather than stored."""
    activation_checkpointing_offload: bool | None = None
    """Whether the inputs of these layers, which remain stored, are kept in the host's memory."""
    cpu_ram_efficient_loading: bool | None = None
    """Whether only rank 0 needs the weights before `prepare`, and other ranks may have the model on the meta device.
    Layers are copied and sharded one by one, so no other rank ever holds the whole model. `from_pretrained` of
    transformers may then skip reading the weights on other ranks."""
    transformer_cls_names_to_wrap: list[str] | None = None
    """Classes of the layers that `transformer_based_wrap` wraps; `None`: the model's `_no_split_modules`."""
    min_num_params: int | None = None
    """The minimum number of parameters for `size_based_wrap` to wrap a module."""

    def __post_init__(self) -> None:
        if self.fsdp_version not in (None, 2):
            raise ConfigurationError(
                f"fsdp_version={self.fsdp_version!r}: only FSDP2 is supported. Leave it out; options of "
                "FSDP1 that FSDP2 also has are accepted."
            )
        self._check_without_effect()
        self.reshard_after_forward = self._reshard()
        self.set_state_dict_type(self._state_dict_type())
        if isinstance(self.auto_wrap_policy, str) and self.auto_wrap_policy.lower() not in WRAPPING:
            raise ConfigurationError(f"auto_wrap_policy={self.auto_wrap_policy!r} must be one of {', '.join(WRAPPING)}")
        self._check_wrapping()

    @classmethod
    def of_environment(cls, environ: Mapping[str, str]) -> FullyShardedDataParallelPlugin:
        """Builds the plugin from a launch's variables, ignoring those that Accelerate sets but that have no effect.

        Raises:
            ConfigurationError: An option is not valid.
        """
        given = {argument: read(name, environ[name]) for name, argument, read in _VARIABLES if name in environ}
        policy = str(given.get("auto_wrap_policy", "")).lower()
        if policy != "size_based_wrap":
            given.pop("min_num_params", None)
        if policy not in ("", "transformer_based_wrap"):
            given.pop("transformer_cls_names_to_wrap", None)
        return cls(**given)

    def set_state_dict_type(self, state_dict_type: Any = None) -> None:
        """Makes checkpoints contain shards or full states from now on; see `state_dict_type`.

        Raises:
            ConfigurationError: There is no such type.
        """
        name = _name(state_dict_type) or "SHARDED_STATE_DICT"
        if name not in STATE_DICTS:
            raise ConfigurationError(f"state_dict_type={name!r} must be one of {', '.join(STATE_DICTS)}")
        self.state_dict_type = name

    def set_auto_wrap_policy(self, model: nn.Module) -> None:
        """Does nothing, since `prepare` finds the layers of each model; code written for Accelerate may call it."""

    @property
    def wrapping(self) -> str | Callable[..., Any]:
        """How to find the layers to shard."""
        if self.auto_wrap_policy is None:
            return "transformer_based_wrap" if self.transformer_cls_names_to_wrap else "no_wrap"
        policy: str | Callable[..., Any] = self.auto_wrap_policy
        return policy.lower() if isinstance(policy, str) else policy

    @property
    def hybrid(self) -> bool:
        """Whether each node holds all shards, replicated over the nodes."""
        return "HYBRID" in (_name(self.sharding_strategy) or "")

    @property
    def offload(self) -> Any:
        """The `OffloadPolicy`, or whether to use the standard one."""
        return getattr(self.cpu_offload, "offload_params", self.cpu_offload) or False

    def _state_dict_type(self) -> Any:
        """The type of state dict that the arguments name, each of which may do so."""
        named = {"state_dict_type": _name(self.state_dict_type)}
        for name in ("state_dict_config", "optim_state_dict_config"):
            if (given := getattr(self, name)) is not None:
                kind = type(given).__name__.partition("State")[0].partition("Optim")[0]
                named[name] = f"{kind.upper()}_STATE_DICT"
        found = {each for each in named.values() if each is not None}
        if len(found) > 1:
            choices = ", ".join(f"{name}: {each}" for name, each in named.items() if each)
            raise ConfigurationError(f"{choices} contradict each other: give one")
        return next(iter(found), None)

    def _check_without_effect(self) -> None:
        always = {
            "backward_prefetch": (None, "NO_PREFETCH", "BACKWARD_PRE"),
            "limit_all_gathers": (True,),
            "use_orig_params": (None, True),
            "sync_module_states": (None, True),
            "forward_prefetch": (None, False),
        }
        for name, allowed in always.items():
            value = getattr(self, name)
            if (_name(value) if name == "backward_prefetch" else value) not in allowed:
                raise ConfigurationError(
                    f"{name}={value!r} would have no effect: FSDP2 does not have this choice. Leave it out."
                )

    def _check_wrapping(self) -> None:
        if self.activation_checkpointing_offload and not self.activation_checkpointing:
            raise ConfigurationError(
                "activation_checkpointing_offload has no effect without activation_checkpointing=True"
            )
        if self.min_num_params is not None and self.wrapping != "size_based_wrap":
            raise ConfigurationError("min_num_params has no effect without auto_wrap_policy='size_based_wrap'")
        if self.transformer_cls_names_to_wrap and self.wrapping != "transformer_based_wrap":
            raise ConfigurationError(
                "transformer_cls_names_to_wrap has no effect without auto_wrap_policy='transformer_based_wrap'"
            )

    def _reshard(self) -> bool | int:
        value = self.reshard_after_forward if self.reshard_after_forward is not None else self.sharding_strategy
        if value is None or isinstance(value, bool):
            return True if value is None else value
        name = _name(value) or ""
        if name == "NO_SHARD":
            raise ConfigurationError("NO_SHARD keeps everything on every rank: leave the plugin out to use DDP")
        if name not in _STRATEGIES:
            raise ConfigurationError(f"{value!r} is not a strategy; use FULL_SHARD, SHARD_GRAD_OP or HYBRID_SHARD")
        return name in ("FULL_SHARD", "HYBRID_SHARD")


def _name(value: Any) -> str | None:
    """The name of an enum's member, of its text, or of a sharding strategy's number."""
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= len(_STRATEGIES):
        return _STRATEGIES[value - 1]
    return str(getattr(value, "name", value)).upper()
