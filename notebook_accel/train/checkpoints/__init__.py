"""Saves and resumes runs: checkpoints, weights, shards, and their files.

Start reading at `checkpoint.py` (`save_state`, `load_state`), then `contents.py` (file by file). Weights that every
rank holds are in `weights.py`; sharded ones in `sharded.py` (each rank writes its part) and `gathered.py` (rank 0
writes all).

The loop over `Accelerator.epochs` saves while the training goes on: ranks agree on a point to save at
(`point_agreement.py`), copy their parts there (`parts.py`), a thread writes them (`background.py`), and a file with
their checksums seals them (`seal.py`). `maintenance.py` lists and removes them, and `merging.py` makes weights of them.
"""
