# Written by scripts/generate from notebook_accel/exports.py.
from notebook_accel.train.helpers.environ import are_libraries_initialized as are_libraries_initialized, clear_environment as clear_environment, get_int_from_env as get_int_from_env, parse_choice_from_env as parse_choice_from_env, parse_flag_from_env as parse_flag_from_env, patch_environment as patch_environment, str_to_bool as str_to_bool
from notebook_accel.train.helpers.probes import check_cuda_fp8_capability as check_cuda_fp8_capability
