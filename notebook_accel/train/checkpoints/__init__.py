"""Saves and resumes runs: checkpoints, weights, shards, and their files.

Start reading at `checkpoint.py` (`save_state`, `load_state`), then `contents.py` (file by file). Weights that every
rank holds are in `weights.py`; sharded ones in `sharded.py` (each rank writes its part) and `gathered.py` (rank 0
writes all).
"""
