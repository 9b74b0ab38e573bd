"""The environment variables that are read once: by libraries as they load, or by Python as a process starts.

What has loaded a library can't start ranks for which these variables have other values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from notebook_accel.launch.wire.constants import recorder_size

# Libraries read these as they load, so ranks forked from a server that has loaded them would not see a change.
# Warm ranks have created a process group, too.
_LOAD_VARS = (
    *("LD_", "DYLD_", "KMP_", "GOMP_", "OMP_", "MKL_", "OPENBLAS_", "PYTORCH_", "TORCH_", "PYTHON"),
    *("TORCHDYNAMO_", "TORCHINDUCTOR_", "INDUCTOR_", "AOTINDUCTOR_", "AOT_INDUCTOR_", "GLOO_DEVICE_"),
)
HARMLESS = (
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTHONPATH"),  # ranks apply these themselves
    *("KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"),  # scikit-learn sets them as it is imported
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",  # read with each group
    "TORCHINDUCTOR_CACHE_DIR",  # read at each use; torch sets it as it compiles
    "PYTORCH_NVML_BASED_CUDA_CHECK",  # Lightning sets it as it is imported; torch reads it at each check
)


_IN_CODE = re.compile(
    r"""["'](?:KMP|GOMP|OMP|MKL|OPENBLAS|PYTORCH|TORCH|TORCHDYNAMO|(?:TORCH|AOT|AOT_)?INDUCTOR|GLOO_DEVICE)_\w+\\?["']"""
)
"""The name of such a variable as a text in Python code."""
_START_VARS = (
    *("LANG", "LC_"),  # Python's encodings, and what C code sorts and prints
    *("MALLOC_", "GLIBC_TUNABLES"),  # the C library's
    *("ATEN_", "DNNL_", "ONEDNN_", "NPY_"),  # which instructions of the processor torch and NumPy use
    "TQDM_",  # tqdm's defaults
)
"""Those that only a new process takes on. A kernel's server has the kernel's from its start."""


def load_time(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that libraries read when they load. A change of any of them needs a new server.

    What each launch adds by default counts as set, so that a launch can use the server that was started before it.
    """
    found = {**environment, **recorder_size(environment)}
    return {name: value for name, value in found.items() if name.startswith(_LOAD_VARS) and name not in HARMLESS}


def may_set_load_time(source: str) -> bool:
    """Whether code names a variable that libraries read when they load, so that it may set it before it imports them.

    A rank that is to find the variable can't be a fork of a server that has loaded them.
    """
    return _IN_CODE.search(source) is not None


def at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a process, or a library in it, has read once by the time that it can start ranks.

    What libraries read in Python is not listed; see `launch/server/imported.py`.
    """
    found = {name: value for name, value in environment.items() if name.startswith(_START_VARS)}
    return {**found, **load_time(environment)}
