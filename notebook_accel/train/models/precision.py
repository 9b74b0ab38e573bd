"""Mixed precision: forward passes under autocast, outputs upcast to float32, and the gradient scaler of fp16."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from notebook_accel.errors import ConfigurationError, HardwareError
from notebook_accel.train.options.plugins import AORecipeKwargs, AutocastKwargs, GradScalerKwargs
from notebook_accel.train.tensors import pytree

_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp8": torch.bfloat16}
_LOW = (torch.float16, torch.bfloat16)
_FP8_CAPABILITY = (8, 9)


class Precision:
    """The mixed precision of an `Accelerator`.

    Raises:
        ConfigurationError: This kind of device does not support it.
        HardwareError: This GPU does not support it.
    """

    def __init__(
        self,
        mode: str,
        device: torch.device,
        *,
        autocast: AutocastKwargs | None = None,
        scaler: GradScalerKwargs | None = None,
        fp8: AORecipeKwargs | None = None,
    ) -> None:
        _check(mode, device)
        self.mode = mode
        self.dtype = _DTYPES.get(mode)
        """The type that operations run in if that is safe; `None`: that of their inputs."""
        self.device_type = device.type
        self.autocast_options = autocast or AutocastKwargs()
        self.fp8_options = fp8 or AORecipeKwargs()
        self.scaler: torch.amp.GradScaler | None = None
        if mode == "fp16":
            self.scaler = torch.amp.GradScaler(device.type, **(scaler or GradScalerKwargs()).to_kwargs())

    def autocast(self, options: AutocastKwargs | None = None) -> AbstractContextManager[Any]:
        """The context in which operations run in the low precision if that is safe."""
        if self.dtype is None:
            return nullcontext()
        return _autocast(self.device_type, self.dtype, options or self.autocast_options)

    @property
    def is_automatic(self) -> bool:
        """Whether models run under autocast. Setting it to `True` without a precision chooses torch's default type."""
        return self.dtype is not None

    @is_automatic.setter
    def is_automatic(self, value: bool) -> None:
        automatic = _DTYPES.get(self.mode) or torch.get_autocast_dtype(self.device_type)
        self.dtype = automatic if value else None

    def apply(self, model: nn.Module) -> nn.Module:
        """Makes the model's forward method run under autocast and return float32. Idempotent."""
        if self.mode == "fp8":
            _to_float8(model, self.fp8_options)
        if self.dtype is not None and not isinstance(model.__dict__.get("forward"), Forward):
            given = model.__dict__.get("forward")
            # Set it on the instance, so that the class is unchanged and the model can still be pickled.
            model.forward = Forward(model, given, self.device_type, self.dtype, self.autocast_options)
        return model


def remove(model: nn.Module) -> nn.Module:
    """Restores a model's own forward method."""
    forward = model.__dict__.get("forward")
    if isinstance(forward, Forward):
        del model.forward
        if forward.given is not None:
            model.forward = forward.given
    return model


class Forward:
    """Replaces a model's forward method, to run under autocast and return float32. Can be pickled and compiled."""

    def __init__(
        self,
        model: nn.Module,
        given: Callable[..., Any] | None,
        device_type: str,
        dtype: torch.dtype,
        options: AutocastKwargs,
    ) -> None:
        self.model = model
        self.given = given
        """A forward method that was set on the instance; `None`: use the one of the class."""
        self.device_type = device_type
        self.dtype = dtype
        self.options = options

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with _autocast(self.device_type, self.dtype, self.options):
            if self.given is None:
                outputs = type(self.model).forward(self.model, *args, **kwargs)
            else:
                outputs = self.given(*args, **kwargs)
        return convert_to_fp32(outputs)

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """For `inspect.signature`, with which trainers find the columns that a model does not accept."""
        return self.given or type(self.model).forward.__get__(self.model)


def convert_to_fp32(tensor: Any) -> Any:
    """The tree with its low-precision tensors upcast to float32."""
    if isinstance(tensor, torch.Tensor):
        return tensor.float() if tensor.dtype in _LOW else tensor
    return pytree.recursively_apply(torch.Tensor.float, tensor, test_type=_is_low)


def _is_low(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in _LOW


def _autocast(device_type: str, dtype: torch.dtype, options: AutocastKwargs) -> torch.autocast:
    return torch.autocast(device_type, dtype=dtype, enabled=options.enabled, cache_enabled=options.cache_enabled)


def _check(mode: str, device: torch.device) -> None:
    if mode in ("fp16", "fp8") and device.type == "cpu":
        raise ConfigurationError(
            f"mixed_precision={mode!r} needs a GPU, but this rank runs on the CPU: use 'bf16', which also works on "
            "a CPU, or 'no'"
        )
    if mode in ("fp16", "fp8") and device.type == "xla":
        raise ConfigurationError(
            f"mixed_precision={mode!r} needs a GPU, but a TPU computes in bfloat16: use 'bf16' or 'no'"
        )
    if mode == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported():
        raise HardwareError(f"{torch.cuda.get_device_name(device)} cannot compute in bf16: use 'fp16' or 'no'")
    if mode == "fp8":
        _check_fp8(device)


def _check_fp8(device: torch.device) -> None:
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < _FP8_CAPABILITY:
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"the device {device.type!r}"
        raise HardwareError(f"{name} cannot compute in fp8, which needs a GPU as new as H100 or L4: use 'bf16'")
    if importlib.util.find_spec("torchao") is None:
        raise ConfigurationError("mixed_precision='fp8' needs torchao: pip install torchao")


def _to_float8(model: nn.Module, options: AORecipeKwargs) -> None:
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    if any(type(module).__name__ == "Float8Linear" for module in model.modules()):
        return
    convert_to_float8_training(
        model,
        config=options.config or Float8LinearConfig(**options.config_fields()),
        module_filter_fn=options.module_filter_func or _float8_filter(model),
    )


def _float8_filter(model: nn.Module) -> Callable[[nn.Module, str], bool]:
    """Selects linear layers whose sizes fp8 units support, except the first and last, which need the precision."""
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    ends = {linear[0], linear[-1]} if linear else set()

    def chosen(module: nn.Module, name: str) -> bool:
        sizes = (module.in_features, module.out_features) if isinstance(module, nn.Linear) else (1,)
        return name not in ends and all(size % 16 == 0 for size in sizes)

    return chosen
