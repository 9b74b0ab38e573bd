"""Answers what can be used here: packages and their versions, devices, and precisions.

A package that only extends a training script is available if it is installed. One that would have to be built into
`Accelerator`, and is not, is never available: code that asks then takes the path that works. Devices are asked for
without opening one where torch offers a way.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.torch_version import TorchVersion

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.helpers.environ import patch_environment

STR_OPERATION_TO_FUNC: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    "<": operator.lt,
}


def compare_versions(library_or_version: Any, operation: str, requirement_version: str) -> bool:
    """Compares the version of an installed package with another one, by the rules of PEP 440.

        if compare_versions("transformers", ">=", "4.40"): ...

    Args:
        library_or_version: The name of a package, or a version object.
        operation: `>`, `>=`, `==`, `!=`, `<=` or `<`.
        requirement_version: The version to compare with.

    Raises:
        ConfigurationError: There is no such operation.
        PackageNotFoundError: The package is not installed.
    """
    if operation not in STR_OPERATION_TO_FUNC:
        raise ConfigurationError(f"operation={operation!r} must be one of {', '.join(STR_OPERATION_TO_FUNC)}")
    is_name = isinstance(library_or_version, str) and not isinstance(library_or_version, TorchVersion)
    found = importlib.metadata.version(library_or_version) if is_name else str(library_or_version)
    return STR_OPERATION_TO_FUNC[operation](TorchVersion(found), requirement_version)


def is_torch_version(operation: str, version: str) -> bool:
    """Compares torch's version with another one: `is_torch_version(">=", "2.6")`; see `compare_versions`."""
    return compare_versions(TorchVersion(torch.__version__), operation, version)


def _installed(module: str, distribution: str = "") -> bool:
    """Whether a package is installed; a folder of the same name in the working directory is not enough."""
    if importlib.util.find_spec(module) is None:
        return False
    try:
        importlib.metadata.version(distribution or module)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _probe(module: str, distribution: str = "") -> Callable[[], bool]:
    def probe() -> bool:
        return _installed(module, distribution)

    probe.__doc__ = f"Whether the package `{distribution or module}` is installed."
    return functools.cache(probe)


is_aim_available = _probe("aim")
is_amdsmi_available = _probe("amdsmi")
is_boto3_available = _probe("boto3")
is_clearml_available = _probe("clearml")
is_comet_ml_available = _probe("comet_ml", "comet-ml")
is_datasets_available = _probe("datasets")
is_dvclive_available = _probe("dvclive")
is_import_timer_available = _probe("import_timer")
is_matplotlib_available = _probe("matplotlib")
is_mlflow_available = _probe("mlflow")
is_numpy_available = _probe("numpy")
is_pandas_available = _probe("pandas")
is_peft_available = _probe("peft")
is_pynvml_available = _probe("pynvml", "nvidia-ml-py")
is_pytest_available = _probe("pytest")
is_rich_available = _probe("rich")
is_sagemaker_available = _probe("sagemaker")
is_schedulefree_available = _probe("schedulefree")
is_swanlab_available = _probe("swanlab")
is_tensorboard_available = _probe("tensorboard")
is_timm_available = _probe("timm")
is_torchao_available = _probe("torchao")
is_torchdata_available = _probe("torchdata")
is_torchdata_stateful_dataloader_available = _probe("torchdata")
is_torchvision_available = _probe("torchvision")
is_tqdm_available = _probe("tqdm")
is_trackio_available = _probe("trackio")
is_transformers_available = _probe("transformers")
is_triton_available = _probe("triton")
is_wandb_available = _probe("wandb")


def is_bnb_available(min_version: str | None = None) -> bool:
    """Whether bitsandbytes is installed, of at least this version."""
    found = _installed("bitsandbytes")
    return found and (min_version is None or compare_versions("bitsandbytes", ">=", min_version))


def is_4bit_bnb_available() -> bool:
    """Whether bitsandbytes is installed, of a version with 4-bit layers."""
    return is_bnb_available("0.39.0")


def is_8bit_bnb_available() -> bool:
    """Whether bitsandbytes is installed, of a version with 8-bit layers."""
    return is_bnb_available("0.37.2")


def _always(answer: bool, why: str) -> Callable[[], bool]:
    def probe() -> bool:
        return answer

    probe.__doc__ = f"Always {answer}: {why}."
    return probe


is_weights_only_available = _always(True, "every supported version of torch can load weights without running code")
is_deepspeed_available = _always(False, "`Accelerator` does not train with DeepSpeed, whether or not it is installed")
is_lomo_available = _always(False, "`Accelerator` does not train with LOMO's fused optimizers")
is_megatron_lm_available = _always(False, "`Accelerator` does not train with Megatron-LM")
is_msamp_available = _always(False, "`Accelerator` uses torchao for fp8, and not MS-AMP")
is_pippy_available = _always(False, "`Accelerator` does not split models into pipelines")
is_transformer_engine_available = _always(False, "`Accelerator` uses torchao for fp8, and not Transformer Engine")
is_transformer_engine_mxfp8_available = is_transformer_engine_available
is_habana_gaudi1 = _always(False, "the package runs no ranks on Habana devices")

_FP8_CAPABILITY = (8, 9)


def is_cuda_available() -> bool:
    """Whether torch can use a CUDA device; asked of NVML, which does not initialize CUDA in this process."""
    with patch_environment(PYTORCH_NVML_BASED_CUDA_CHECK="1"):
        return torch.cuda.is_available()


def is_rocm_available() -> bool:
    """Whether torch was built for AMD's ROCm, and can use a device."""
    return torch.version.hip is not None and torch.cuda.is_available()


def is_mps_available(min_version: str = "1.12") -> bool:
    """Whether torch can use an Apple GPU.

    Args:
        min_version: The oldest version of torch that counts.
    """
    return is_torch_version(">=", min_version) and torch.backends.mps.is_available()


def is_xpu_available(check_device: bool = False) -> bool:
    """Whether torch can use an Intel GPU. The package itself runs no ranks on one.

    Args:
        check_device: Without effect: a device is always looked for.
    """
    return torch.xpu.is_available()


def _finds(package: str, kind: str) -> bool:
    """Whether an extension of torch, which adds a kind of device when it is imported, is installed and finds one."""
    if importlib.util.find_spec(package) is None:
        return False
    try:
        importlib.import_module(package)
        return bool(getattr(torch, kind).is_available())
    except Exception:  # an extension whose driver is missing fails in many ways, and has no device in any of them
        return False


def _extension(package: str, kind: str) -> Callable[..., bool]:
    def probe(check_device: bool = False) -> bool:
        return _finds(package, kind)

    probe.__doc__ = f"Whether `{package}` is installed and finds a device. The package itself runs no ranks on one."
    return probe


is_mlu_available = _extension("torch_mlu", "mlu")
is_musa_available = _extension("torch_musa", "musa")
is_neuron_available = _extension("torch_neuronx", "neuron")
is_npu_available = _extension("torch_npu", "npu")
is_sdaa_available = _extension("torch_sdaa", "sdaa")


def is_hpu_available(init_hccl: bool = False) -> bool:
    """Whether Habana's torch is installed and finds a device. The package itself runs no ranks on one."""
    return _finds("habana_frameworks", "hpu")


def is_torch_xla_available(check_is_tpu: bool = False, check_is_gpu: bool = False) -> bool:
    """Whether torch_xla is installed.

    Args:
        check_is_tpu: Whether its device must also be a TPU.
        check_is_gpu: Whether its device must also be a GPU.
    """
    if importlib.util.find_spec("torch_xla") is None:
        return False
    if not (check_is_tpu or check_is_gpu):
        return True
    kind: str = importlib.import_module("torch_xla.runtime").device_type()
    return kind == "TPU" if check_is_tpu else kind in ("GPU", "CUDA")


def is_torch_distributed_available() -> bool:
    """Whether torch was built with `torch.distributed`."""
    return torch.distributed.is_available()


def is_xccl_available() -> bool:
    """Whether torch was built with the backend of Intel GPUs."""
    probe = getattr(torch.distributed.distributed_c10d, "is_xccl_available", None)
    return bool(probe and probe())


def is_bf16_available(ignore_tpu: bool = False) -> bool:
    """Whether this machine's devices compute in bf16.

    Args:
        ignore_tpu: Whether the answer for a TPU, which does, is no.
    """
    if is_torch_xla_available(check_is_tpu=True):
        return not ignore_tpu
    if is_cuda_available():
        return bool(torch.cuda.is_bf16_supported())
    if is_mps_available():
        return bool(torch.backends.mps.is_macos_or_newer(14, 0))
    return True


def is_fp16_available() -> bool:
    """Whether this machine's devices compute in fp16 as `mixed_precision="fp16"` needs, which a CPU does not."""
    return is_cuda_available() or is_mps_available()


def is_fp8_available() -> bool:
    """Whether `mixed_precision="fp8"` works here: torchao is installed, and the GPU has units for it."""
    return importlib.util.find_spec("torchao") is not None and check_cuda_fp8_capability()


def check_cuda_fp8_capability() -> bool:
    """Whether the current GPU has units for fp8; initializes CUDA."""
    return torch.cuda.is_available() and torch.cuda.get_device_capability() >= _FP8_CAPABILITY


def get_backend() -> tuple[str, int, Callable[[], int]]:
    """The kind of this machine's device, the number of them, and a function that returns its allocated bytes."""
    if is_torch_xla_available(check_is_tpu=True):
        runtime = importlib.import_module("torch_xla.runtime")
        return "xla", runtime.local_device_count(), lambda: 0
    if is_cuda_available():
        return "cuda", torch.cuda.device_count(), torch.cuda.memory_allocated
    if is_mps_available():
        return "mps", 1, torch.mps.current_allocated_memory
    return "cpu", 1, lambda: 0
