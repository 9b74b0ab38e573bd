"""Answers which optional packages can be used here.

A package that only extends a training script is available if it is installed. One that would have to be built into
`Accelerator`, and is not, is never available: code that asks then takes the path that works.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
from collections.abc import Callable

from notebook_accel.train.helpers.version_checks import compare_versions


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


def is_weights_only_available() -> bool:
    """Always true: every supported version of torch can load weights without running code."""
    return True


def is_deepspeed_available() -> bool:
    """Always false: `Accelerator` does not train with DeepSpeed, whether or not it is installed."""
    return False


def is_lomo_available() -> bool:
    """Always false: `Accelerator` does not train with LOMO's fused optimizers."""
    return False


def is_megatron_lm_available() -> bool:
    """Always false: `Accelerator` does not train with Megatron-LM."""
    return False


def is_msamp_available() -> bool:
    """Always false: `Accelerator` uses torchao for fp8, and not MS-AMP."""
    return False


def is_pippy_available() -> bool:
    """Always false: `Accelerator` does not split models into pipelines."""
    return False


def is_transformer_engine_available() -> bool:
    """Always false: `Accelerator` uses torchao for fp8, and not Transformer Engine."""
    return False


def is_transformer_engine_mxfp8_available() -> bool:
    """Always false; see `is_transformer_engine_available`."""
    return False
