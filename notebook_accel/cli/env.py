"""`notebook-accel env`: shows the information about this machine that a bug report needs."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import click

from notebook_accel import __version__, hardware
from notebook_accel.config import file
from notebook_accel.errors import NotebookAccelError
from notebook_accel.hardware import cores, energy
from notebook_accel.launch.engines import base_server
from notebook_accel.launch.job.text import size

_PACKAGES = ("torch", "numpy", "safetensors", "cloudpickle", "torchao", "torchdata", "torch_xla", "transformers",
             "accelerate", "lightning", "tqdm")  # fmt: skip
_FRONT_ENDS = ("ipython", "ipykernel", "ipywidgets", "anywidget", "jupyterlab", "notebook", "jupyter_server")
_VARIABLES = ("NOTEBOOK_ACCEL_", "ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_", "CUDA_", "NCCL_", "GLOO_", "TORCH_",
              "PYTORCH_", "OMP_", "MKL_", "SLURM_JOB_", "KUBERNETES_PORT", "COLAB_", "KAGGLE_KERNEL_")  # fmt: skip
"""Prefixes of environment variables that change a launch."""
_SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH|COOKIE|(^|_)(API)?(KEYS?|PWD|PASS|PAT|SAS)(_|$)", re.IGNORECASE
)
_SECRET_VALUE = re.compile(r":[^/@\s]+@")
"""`user:password@`, as in the address of a proxy."""


def collect() -> dict[str, dict[str, Any]]:
    """Makes the report, by section. The value of an entry that can't be determined is the reason."""
    sections: Mapping[str, Callable[[], dict[str, Any]]] = {
        "notebook-accel": _package,
        "system": _system,
        "hardware": _hardware,
        "torch": _torch,
        "packages": lambda: _versions(_PACKAGES),
        "front ends": lambda: _versions(_FRONT_ENDS),
        "settings": _settings,
        "environment": _environment,
    }
    return {name: section() for name, section in sections.items()}


def _package() -> dict[str, Any]:
    shared = base_server.of_this_process()
    return {
        "version": __version__,
        "folder": str(Path(__file__).parents[1]),
        "python": sys.executable,
        "base server": "none" if shared is None else base_server.describe(shared),
    }


def _system() -> dict[str, Any]:
    import psutil

    memory = psutil.virtual_memory()
    return {
        "platform": platform.platform(),
        "python": platform.python_version(),
        "cores": f"{cores.usable()} usable, {psutil.cpu_count(False)} physical, {psutil.cpu_count()} logical",
        "memory": f"{size(memory.total)}, {size(memory.available)} free",
        "shared memory": _free("/dev/shm"),
        "temporary folder": _free(os.environ.get("TMPDIR", "/tmp")),
    }


def _free(folder: str) -> str:
    try:
        usage = shutil.disk_usage(folder)
    except OSError as error:
        return f"{folder}: {error.strerror}"
    return f"{folder}: {size(usage.total)}, {size(usage.free)} free"


def _hardware() -> dict[str, Any]:
    found = hardware.detect()
    titles = {row.name: row.title for row in hardware.ACCELERATORS}
    return {
        "used unasked": found.kind,
        **{titles[name]: _listed(listing) for name, listing in found.listings.items()},
        "NVIDIA driver": _driver(),
        **energy.availability(),
    }


def _listed(listing: hardware.Listing) -> str:
    names = Counter(f"{each.name}, {size(each.total)}" if each.total else each.name for each in listing.devices)
    shown = "; ".join(f"{count} × {name}" if count > 1 else name for name, count in names.items())
    return f"{shown} (can't be used: {listing.unusable})" if listing.unusable else shown


def _driver() -> str:
    path = Path("/proc/driver/nvidia/version")
    return path.read_text().splitlines()[0] if path.is_file() else "none"


def _torch() -> dict[str, Any]:
    try:
        import torch
        import torch.distributed as dist
    except Exception as error:  # some reports are about a broken installation
        return {"import": f"{type(error).__name__}: {error}"}
    cuda = torch.cuda.is_available()
    found = {
        "version": torch.__version__,
        "built for CUDA": torch.version.cuda or "no",
        "CUDA": "available" if cuda else "not available",
        "backends": ", ".join(name for name in ("gloo", "nccl", "mpi") if dist.is_backend_available(name)) or "none",
        "bf16": "on GPUs" if cuda and torch.cuda.is_bf16_supported() else "on the CPU",
        "threads": torch.get_num_threads(),
    }
    if cuda:
        found["NCCL"] = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
        found["cuDNN"] = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    return found


def _versions(names: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "-"
    return found


def _settings() -> dict[str, Any]:
    where = file.location(os.environ)
    try:
        keys = file.read(where)
    except NotebookAccelError as error:
        return {"file": str(where), "error": _SECRET_VALUE.sub(":…@", str(error))}
    if keys is None:
        return {"file": f"{where}: none"}
    # The variables that `env` sets may be anything, so not even their names are shown.
    return {"file": str(where), **{key: _shown(key, value) for key, value in keys.items() if key != "env"}}


def _environment() -> dict[str, Any]:
    return {name: _shown(name, value) for name, value in sorted(os.environ.items()) if name.startswith(_VARIABLES)}


def _shown(name: str, value: Any) -> Any:
    """The value, unless its name or its text looks like a secret's."""
    if isinstance(value, Mapping):
        return {key: _shown(str(key), inner) for key, inner in value.items()}
    is_secret = _SECRET_NAME.search(name) or _SECRET_VALUE.search(str(value))
    return "(not shown: it may be private)" if is_secret else value


@click.command("env")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> None:
    """Show what a bug report needs: this machine's versions, hardware, settings, and front ends."""
    found = collect()
    if as_json:
        click.echo(json.dumps(found, indent=2, default=str))
        return
    for section, values in found.items():
        click.echo(section)
        for name, value in values.items():
            click.echo(f"  {name}: {value}")
