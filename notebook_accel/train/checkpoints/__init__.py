"""What a run keeps: checkpoints, weights, shards, and the files they consist of.

Start reading at `checkpoint.py` (`save_state`, `load_state`), then `contents.py` (file by file).
"""
