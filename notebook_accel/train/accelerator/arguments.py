"""Checks the arguments of an `Accelerator` against each other, and merges those that set the same option."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.options.deepspeed import DeepSpeedPlugin
from notebook_accel.train.options.enums import DynamoBackend
from notebook_accel.train.options.fsdp import FullyShardedDataParallelPlugin
from notebook_accel.train.options.plugins import (
    AORecipeKwargs,
    AutocastKwargs,
    DataLoaderConfiguration,
    DistributedDataParallelKwargs,
    GradientAccumulationPlugin,
    GradScalerKwargs,
    InitProcessGroupKwargs,
    KwargsHandler,
    ProfileKwargs,
    ProjectConfiguration,
    TorchDynamoPlugin,
)
from notebook_accel.train.ranks import environment
from notebook_accel.train.ranks.gradient_state import GradientState
from notebook_accel.train.ranks.logging import get_logger

H = TypeVar("H", bound=KwargsHandler)
_HANDLERS = (
    DistributedDataParallelKwargs, GradScalerKwargs, InitProcessGroupKwargs, AutocastKwargs, ProfileKwargs,
    AORecipeKwargs,
)  # fmt: skip

_log = get_logger(__name__)


class Handlers:
    """The objects in `kwargs_handlers`, by class."""

    def __init__(self, given: Sequence[KwargsHandler]) -> None:
        self._given: dict[type[KwargsHandler], KwargsHandler] = {}
        for handler in given:
            kind = next((each for each in _HANDLERS if isinstance(handler, each)), None)
            if kind is None:
                raise ConfigurationError(
                    f"kwargs_handlers contains {handler!r:.80}, which is not one of "
                    f"{', '.join(each.__name__ for each in _HANDLERS)}"
                )
            if kind in self._given:
                raise ConfigurationError(f"kwargs_handlers contains two {kind.__name__}: pass only one")
            self._given[kind] = handler

    def get(self, kind: type[H]) -> H | None:
        found = self._given.get(kind)
        assert found is None or isinstance(found, kind)
        return found


def project(config: ProjectConfiguration | None, folder: str | os.PathLike[str] | None) -> ProjectConfiguration:
    """The project configuration, from `project_config` or `project_dir`."""
    chosen = config or ProjectConfiguration()
    if folder is not None and chosen.project_dir is None:
        chosen.set_directories(os.fspath(folder))
    elif folder is not None and os.fspath(folder) != chosen.project_dir:
        raise ConfigurationError(
            f"project_dir={os.fspath(folder)!r} contradicts project_config, whose project_dir is "
            f"{chosen.project_dir!r}: give one of them"
        )
    return chosen


def loading(config: DataLoaderConfiguration | None, split_batches: bool | None) -> DataLoaderConfiguration:
    """The configuration of loaders, from `dataloader_config` or `split_batches`."""
    config = config or DataLoaderConfiguration(split_batches=bool(split_batches))
    if split_batches is not None and split_batches != config.split_batches:
        raise ConfigurationError(
            f"split_batches={split_batches} contradicts dataloader_config, which has {config.split_batches}: "
            "give it there alone"
        )
    return config


def translated(
    plugin: DeepSpeedPlugin | None, fsdp: FullyShardedDataParallelPlugin | None, precision: str | None
) -> tuple[FullyShardedDataParallelPlugin | None, str | None, float | None]:
    """How models are sharded, in which precision, and the greatest norm of gradients, from a plugin for DeepSpeed."""
    if plugin is None:
        return fsdp, precision, environment.read().clipping
    if not isinstance(plugin, DeepSpeedPlugin):
        raise ConfigurationError(f"deepspeed_plugin={plugin!r:.80} must be a DeepSpeedPlugin of notebook_accel")
    if fsdp is not None:
        raise ConfigurationError("deepspeed_plugin and fsdp_plugin were both given: give one of them")
    found = plugin.translation
    if found.mixed_precision is not None and precision not in (None, found.mixed_precision):
        raise ConfigurationError(
            f"mixed_precision={precision!r} contradicts deepspeed_plugin, whose configuration enables "
            f"{found.mixed_precision}: give one of them"
        )
    _log.warning(found.line)
    return plugin.fsdp_plugin(), found.mixed_precision or precision, found.clipping


def accumulation(
    plugin: GradientAccumulationPlugin | None, steps: int, of_deepspeed: int | str | None = None
) -> GradientAccumulationPlugin:
    """The accumulation settings, from a plugin, the number of steps, or otherwise the environment of the launch."""
    if isinstance(of_deepspeed, int):
        chosen = steps if plugin is None else plugin.num_steps
        if chosen not in (None, 1, of_deepspeed):
            raise ConfigurationError(
                f"gradient_accumulation_steps={chosen} contradicts deepspeed_plugin, which has {of_deepspeed}: give "
                "one of them, or write auto there"
            )
        return replace(plugin or GradientAccumulationPlugin(), num_steps=of_deepspeed)
    if plugin is not None:
        if steps != 1:
            raise ConfigurationError(
                f"gradient_accumulation_steps={steps} and gradient_accumulation_plugin were both given: give one"
            )
        return plugin
    return GradientAccumulationPlugin(num_steps=steps if steps != 1 else environment.read().accumulation_steps)


def warn_of_other_accumulation(steps: int) -> None:
    """Warns if gradients will be accumulated over another number of batches than for the Accelerators before.

    Args:
        steps: The number of batches that this one asks for, or that it has by default.
    """
    settled = GradientState.settled()
    if settled is not None and settled.num_steps not in (1, steps):
        _log.warning(
            "all Accelerators of a process accumulate gradients over the same number of batches: from now on over "
            f"{steps} instead of {settled.num_steps}, also those that were created before. To keep the number, pass "
            f"gradient_accumulation_steps={settled.num_steps}, or pass the first Accelerator on"
        )


def compiling(plugin: TorchDynamoPlugin | None, backend: DynamoBackend | str | None) -> TorchDynamoPlugin | None:
    """The compilation settings, from the plugin or the name of a backend; `None` if neither is given."""
    if plugin is not None and backend is not None:
        raise ConfigurationError("dynamo_plugin and dynamo_backend were both given: give one of them")
    return plugin if backend is None else TorchDynamoPlugin(backend=backend)


def warn_of_no_compiler(given: TorchDynamoPlugin | None, settled: TorchDynamoPlugin) -> None:
    """Warns of options for the compiler if neither they nor the launch name one.

    Args:
        given: The user's plugin.
        settled: The same, with the settings of the launch.
    """
    if given is None or given.backend is not None or settled.chosen or not given.given():
        return
    options = ", ".join(f"{name}={getattr(given, name)!r}" for name in given.given())
    _log.warning(  # not an error, since Accelerate runs such code, without compiling
        "TorchDynamoPlugin(%s) has no effect without a backend, so models are not compiled. To compile them, add "
        "backend='inductor'.", options,
    )  # fmt: skip


def warn_of_other_precision(handlers: Handlers, mode: str) -> None:
    """Warns of options for another mixed precision than `mode`.

    Not an error: the notebook or the command line may choose the precision, so that the code passes options for each.
    """
    for kind, needed in ((GradScalerKwargs, "fp16"), (AORecipeKwargs, "fp8")):
        if mode != needed and handlers.get(kind) is not None:
            _log.warning("%s has no effect with mixed_precision=%r: only %s uses it.", kind.__name__, mode, needed)


def fp8(options: AORecipeKwargs | None, fsdp: FullyShardedDataParallelPlugin | None) -> AORecipeKwargs | None:
    """The options of fp8, as given."""
    if options is not None and options.enable_fsdp_float8_all_gather and fsdp is None:
        raise ConfigurationError("AORecipeKwargs(enable_fsdp_float8_all_gather=True) has no effect without fsdp_plugin")
    return options
