# Written by scripts/generate from notebook_accel/exports.py.
from accelerate.utils.other import TORCH_SAFE_GLOBALS as TORCH_SAFE_GLOBALS, compile_regions_fsdp2 as compile_regions_fsdp2, get_free_port as get_free_port, get_model_tp_size as get_model_tp_size, has_repeated_blocks as has_repeated_blocks, is_repeated_blocks as is_repeated_blocks
from notebook_accel.train.checkpoints.serialization import load as load, save as save
from notebook_accel.train.helpers.basic_config import write_basic_config as write_basic_config
from notebook_accel.train.helpers.module_tensors import id_tensor_storage as id_tensor_storage
from notebook_accel.train.helpers.objects import check_os_kernel as check_os_kernel, clean_state_dict_for_safetensors as clean_state_dict_for_safetensors, convert_bytes as convert_bytes, get_pretty_name as get_pretty_name, is_port_in_use as is_port_in_use, merge_dicts as merge_dicts, recursive_getattr as recursive_getattr
from notebook_accel.train.helpers.parallel_models import get_module_children_bottom_up as get_module_children_bottom_up, is_compiled_module as is_compiled_module, model_has_dtensor as model_has_dtensor
from notebook_accel.train.helpers.probes import is_torch_version as is_torch_version
from notebook_accel.train.models.compiling import compile_regions as compile_regions, has_compiled_regions as has_compiled_regions
from notebook_accel.train.models.parallel_wrappers import extract_model_from_parallel as extract_model_from_parallel
from notebook_accel.train.ranks.state import PartialState as PartialState, wait_for_everyone as wait_for_everyone
