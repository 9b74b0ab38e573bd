# Written by scripts/generate from notebook_accel/exports.py.
from accelerate.utils.launch import env_var_path_add as env_var_path_add
