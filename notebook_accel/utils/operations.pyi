# Written by scripts/generate from notebook_accel/exports.py.
from accelerate.utils.operations import ConvertOutputsToFp32 as ConvertOutputsToFp32, TENSOR_INT_TO_DTYPE as TENSOR_INT_TO_DTYPE, TENSOR_TYPE_TO_INT as TENSOR_TYPE_TO_INT, get_shape as get_shape, is_torch_xpu_tensor as is_torch_xpu_tensor, pad_input_tensors as pad_input_tensors
from notebook_accel.errors import DistributedOperationException as DistributedOperationException
from notebook_accel.train.helpers.parallel_models import convert_outputs_to_fp32 as convert_outputs_to_fp32
from notebook_accel.train.models.precision import convert_to_fp32 as convert_to_fp32
from notebook_accel.train.options.enums import DistributedType as DistributedType
from notebook_accel.train.ranks.collectives import CannotPadNestedTensorWarning as CannotPadNestedTensorWarning, broadcast as broadcast, broadcast_object_list as broadcast_object_list, copy_tensor_to_devices as copy_tensor_to_devices, gather as gather, gather_object as gather_object, pad_across_processes as pad_across_processes, reduce as reduce
from notebook_accel.train.ranks.state import PartialState as PartialState
from notebook_accel.train.tensors.pytree import TensorInformation as TensorInformation, find_batch_size as find_batch_size, find_device as find_device, get_data_structure as get_data_structure, honor_type as honor_type, ignorant_find_batch_size as ignorant_find_batch_size, initialize_tensors as initialize_tensors, is_namedtuple as is_namedtuple, is_tensor_information as is_tensor_information, is_torch_tensor as is_torch_tensor, listify as listify, recursively_apply as recursively_apply, send_to_device as send_to_device
from notebook_accel.train.tensors.rows import concatenate as concatenate, slice_tensors as slice_tensors
