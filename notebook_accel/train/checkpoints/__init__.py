"""What a run saves and resumes from: checkpoints, weights, shards, and the files they consist of.

Start reading at `checkpoint.py` (`save_state`, `load_state`), then `contents.py` (file by file). Weights that every
rank holds are in `weights.py`; sharded ones in `sharded.py` (each rank writes its part) and `gathered.py` (rank 0
writes all).
"""
