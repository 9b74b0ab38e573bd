"""Answers which devices and precisions torch can use here, without opening a device where torch offers a way."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable

import torch

from notebook_accel.train.helpers.environ import patch_environment
from notebook_accel.train.helpers.version_checks import is_torch_version

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


def is_mlu_available(check_device: bool = False) -> bool:
    """Whether `torch_mlu` is installed and finds a device. The package itself runs no ranks on one."""
    return _finds("torch_mlu", "mlu")


def is_musa_available(check_device: bool = False) -> bool:
    """Whether `torch_musa` is installed and finds a device. The package itself runs no ranks on one."""
    return _finds("torch_musa", "musa")


def is_npu_available(check_device: bool = False) -> bool:
    """Whether `torch_npu` is installed and finds a device. The package itself runs no ranks on one."""
    return _finds("torch_npu", "npu")


def is_sdaa_available(check_device: bool = False) -> bool:
    """Whether `torch_sdaa` is installed and finds a device. The package itself runs no ranks on one."""
    return _finds("torch_sdaa", "sdaa")


def is_neuron_available(check_device: bool = False) -> bool:
    """Whether `torch_neuronx` is installed and finds a device. The package itself runs no ranks on one."""
    return _finds("torch_neuronx", "neuron")


def is_hpu_available(init_hccl: bool = False) -> bool:
    """Whether Habana's torch is installed and finds a device. The package itself runs no ranks on one."""
    return _finds("habana_frameworks", "hpu")


def is_habana_gaudi1() -> bool:
    """Always false: the package runs no ranks on Habana devices."""
    return False


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
