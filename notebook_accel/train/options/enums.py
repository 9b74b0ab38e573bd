"""The enums for `Accelerator(...)`, with Accelerate's names and values."""

from __future__ import annotations

import enum

from notebook_accel.train.options.choice import Choice


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


class FP8BackendType(
    Choice, refused="MSAMP TE", advice="mixed_precision='fp8' uses torchao: compare with FP8BackendType.AO."
):
    """The library that computes in fp8."""

    NO = "NO"
    AO = "AO"


class RNGType(
    Choice,
    refused="HPU MLU MUSA NEURON NPU SDAA XLA XPU",
    advice="The random states of the CPU and of GPUs are synced. Leave it out, and call set_seed, which seeds the "
    "device of every rank.",
):
    """A random state that can be made equal on all ranks."""

    TORCH = "torch"
    CUDA = "cuda"
    GENERATOR = "generator"


class LoggerType(
    Choice,
    refused="AIM CLEARML DVCLIVE SWANLAB",
    advice="Write your own tracker, a subclass of GeneralTracker with about a dozen lines, and pass it in log_with.",
):
    """The trackers that can be chosen by name."""

    ALL = "all"
    TENSORBOARD = "tensorboard"
    WANDB = "wandb"
    TRACKIO = "trackio"
    COMETML = "comet_ml"
    MLFLOW = "mlflow"


class DynamoBackend(
    Choice,
    refused="""AOT_TORCHXLA_TRACE_ONCE AOT_TS_NVFUSER FX2TRT HPU_BACKEND NEURON NVPRIMS_NVFUSER OFI ONNXRT TENSORRT
        TORCHXLA_TRACE_ONCE TVM""",
    advice="Pass torch's own name of the compiler as a string, such as dynamo_backend='tvm'; the package that adds it "
    "to torch has to be installed. torch.compiler.list_backends() returns the names.",
):
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
