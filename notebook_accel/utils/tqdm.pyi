# Written by scripts/generate from notebook_accel/exports.py.
from notebook_accel.train.helpers.rank_tqdm import tqdm as tqdm
