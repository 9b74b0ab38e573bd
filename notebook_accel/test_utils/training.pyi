# Written by scripts/generate from notebook_accel/exports.py.
from accelerate.test_utils.training import RegressionDataset as RegressionDataset, RegressionModel as RegressionModel
