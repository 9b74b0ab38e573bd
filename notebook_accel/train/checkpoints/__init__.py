"""Saves and resumes runs: checkpoints, weights, shards, and their files.

Start reading at `checkpoint.py` (`save_state`, `load_state`), then `contents.py` (file by file). Weights that every
rank holds are in `weights.py`; sharded ones in `sharded.py` (each rank writes its part) and `gathered.py` (rank 0
writes all).

The loop over `Accelerator.epochs` saves while the training continues: ranks copy their parts (`parts.py`), a thread
writes them (`background.py`), and a file with their checksums seals them (`seal.py`). Those of remote folders
(`remote/`) are uploaded and downloaded (`transfer.py`). `maintenance.py` lists and removes them, and `merging.py` makes
weights of them.
"""
