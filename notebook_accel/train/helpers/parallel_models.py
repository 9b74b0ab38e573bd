"""What a model is, and what is in it, whatever wraps it."""

from __future__ import annotations

import sys
from typing import Any

from torch import nn

from notebook_accel.train.models import compiling, precision
from notebook_accel.train.models.parallel_wrappers import extract_model_from_parallel
from notebook_accel.train.tensors.shards import is_dtensor


def is_compiled_module(module: nn.Module) -> bool:
    """Whether `torch.compile` has wrapped a module."""
    return compiling.is_compiled(module)


def is_peft_model(model: nn.Module) -> bool:
    """Whether a model, perhaps wrapped, is one of PEFT's."""
    peft = sys.modules.get("peft")  # code that has such a model has imported it
    return peft is not None and isinstance(extract_model_from_parallel(model, keep_torch_compile=False), peft.PeftModel)


def model_has_dtensor(model: nn.Module) -> bool:
    """Whether parameters of a model are sharded."""
    return any(is_dtensor(parameter) for parameter in model.parameters())


def get_module_children_bottom_up(model: nn.Module, return_fqns: bool = False) -> list[Any]:
    """A model's modules, each after all modules in it; the model itself is last.

    Args:
        model: The model.
        return_fqns: Whether to return each with its name, as a tuple.
    """
    found: list[tuple[str, nn.Module]] = []

    def visit(name: str, module: nn.Module) -> None:
        for own, child in module.named_children():
            visit(f"{name}.{own}".lstrip("."), child)
        found.append((name, module))

    visit("", model)
    return found if return_fqns else [module for _, module in found]


def convert_outputs_to_fp32(model_forward: Any) -> Any:
    """Makes a function, such as a model's forward method, return float32 tensors in place of fp16 and bf16 ones."""
    return Fp32Outputs(model_forward)


class Fp32Outputs:
    """A function whose results are converted. It can be pickled, and `inspect.signature` sees through it."""

    def __init__(self, function: Any) -> None:
        self.__wrapped__ = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return precision.convert_to_fp32(self.__wrapped__(*args, **kwargs))
