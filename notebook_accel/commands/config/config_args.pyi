# Written by scripts/generate from notebook_accel/exports.py.
from notebook_accel.train.helpers.basic_config import cache_dir as cache_dir, default_config_file as default_config_file, default_json_config_file as default_json_config_file, default_yaml_config_file as default_yaml_config_file
