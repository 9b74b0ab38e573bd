"""The enums for `Accelerator(...)`, with Accelerate's names and values."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from notebook_accel.advice import instead_of
from notebook_accel.errors import ConfigurationError

if TYPE_CHECKING:
    from typing_extensions import Self


class _ChoiceType(enum.EnumMeta):
    """The class of `Choice` and its subclasses, which explains the members that a subclass refuses."""

    if not TYPE_CHECKING:  # for a type checker, an unknown member stays unknown

        def __getattr__(cls, name: str) -> Any:
            members = cls.__dict__.get("_member_map_", {})
            if name in members:  # Python 3.10 looks up all members here
                return members[name]
            raise AttributeError(cls.refusal(name) or f"{cls.__name__} has no member {name!r}")

    def refusal(cls, name: str) -> str:
        """The message about a member that Accelerate has, but not this package; empty for any other name."""
        advice = instead_of(name.upper(), cls.__name__)
        return f"notebook_accel has no {cls.__name__}.{name.upper()}. {advice}" if advice else ""


class Choice(str, enum.Enum, metaclass=_ChoiceType):
    """A choice that can also be given as a string, in upper or lower case."""

    @classmethod
    def _missing_(cls, value: object) -> Choice | None:
        return next((each for each in cls if isinstance(value, str) and each.value.lower() == value.lower()), None)

    @classmethod
    def list(cls) -> list[str]:
        return [each.value for each in cls]

    def __str__(self) -> str:
        return str(self.value)

    @classmethod
    def of(cls, value: object, name: str) -> Self:
        """Parses the user's argument `name` into a choice."""
        try:
            return cls(value)
        except ValueError:
            refusal = cls.refusal(str(value))
            instead = f". {refusal}" if refusal else ""
            raise ConfigurationError(f"{name}={value!r} must be one of {', '.join(cls.list())}{instead}") from None


class DistributedType(str, enum.Enum):
    """How the ranks work together. The values below XLA never occur; code written for Accelerate may name them."""

    NO = "NO"
    MULTI_CPU = "MULTI_CPU"
    MULTI_GPU = "MULTI_GPU"
    FSDP = "FSDP"
    TP = "TP"
    XLA = "XLA"
    DEEPSPEED = "DEEPSPEED"
    MEGATRON_LM = "MEGATRON_LM"
    MULTI_NPU = "MULTI_NPU"
    MULTI_MLU = "MULTI_MLU"
    MULTI_SDAA = "MULTI_SDAA"
    MULTI_MUSA = "MULTI_MUSA"
    MULTI_XPU = "MULTI_XPU"
    MULTI_HPU = "MULTI_HPU"
    MULTI_NEURON = "MULTI_NEURON"


class PrecisionType(Choice):
    """The precision of a forward pass."""

    NO = "no"
    FP8 = "fp8"
    FP16 = "fp16"
    BF16 = "bf16"


class FP8BackendType(Choice):
    """The library that computes in fp8."""

    NO = "NO"
    AO = "AO"


class RNGType(Choice):
    """A random state that can be made equal on all ranks."""

    TORCH = "torch"
    CUDA = "cuda"
    GENERATOR = "generator"


class LoggerType(Choice):
    """The trackers that can be chosen by name."""

    ALL = "all"
    TENSORBOARD = "tensorboard"
    WANDB = "wandb"
    TRACKIO = "trackio"
    COMETML = "comet_ml"
    MLFLOW = "mlflow"
    AIM = "aim"
    CLEARML = "clearml"
    DVCLIVE = "dvclive"
    SWANLAB = "swanlab"


class DynamoBackend(Choice):
    """The compilers of `torch.compile` that come with torch."""

    NO = "NO"
    EAGER = "EAGER"
    AOT_EAGER = "AOT_EAGER"
    INDUCTOR = "INDUCTOR"
    CUDAGRAPHS = "CUDAGRAPHS"


class DDPCommunicationHookType(Choice):
    """How gradients are compressed before they are synced."""

    NO = "no"
    FP16 = "fp16"
    BF16 = "bf16"
    POWER_SGD = "power_sgd"
    BATCHED_POWER_SGD = "batched_power_sgd"
