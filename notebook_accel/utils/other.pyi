# Written by scripts/generate from notebook_accel/exports.py.

from notebook_accel.train.checkpoints.serialization import (
    load,
    save,
)
from notebook_accel.train.helpers.basic_config import (
    write_basic_config,
)
from notebook_accel.train.helpers.module_tensors import (
    id_tensor_storage,
)
from notebook_accel.train.helpers.objects import (
    clean_state_dict_for_safetensors,
    convert_bytes,
    get_pretty_name,
    is_port_in_use,
    merge_dicts,
    recursive_getattr,
)
from notebook_accel.train.helpers.parallel_models import (
    extract_model_from_parallel,
    get_module_children_bottom_up,
    is_compiled_module,
    model_has_dtensor,
)
from notebook_accel.train.helpers.version_checks import (
    is_torch_version,
)
from notebook_accel.train.models.compiling import (
    compile_regions,
    has_compiled_regions,
)
from notebook_accel.train.ranks.state import (
    PartialState,
    wait_for_everyone,
)

__all__ = [
    "PartialState",
    "clean_state_dict_for_safetensors",
    "compile_regions",
    "convert_bytes",
    "extract_model_from_parallel",
    "get_module_children_bottom_up",
    "get_pretty_name",
    "has_compiled_regions",
    "id_tensor_storage",
    "is_compiled_module",
    "is_port_in_use",
    "is_torch_version",
    "load",
    "merge_dicts",
    "model_has_dtensor",
    "recursive_getattr",
    "save",
    "wait_for_everyone",
    "write_basic_config",
]
