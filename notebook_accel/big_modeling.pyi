# Written by scripts/generate from notebook_accel/exports.py.
from notebook_accel.train.checkpoints.weights import load_checkpoint_in_model as load_checkpoint_in_model
from notebook_accel.train.helpers.empty_models import init_empty_weights as init_empty_weights, init_on_device as init_on_device
from notebook_accel.train.helpers.module_tensors import find_tied_parameters as find_tied_parameters, retie_parameters as retie_parameters
