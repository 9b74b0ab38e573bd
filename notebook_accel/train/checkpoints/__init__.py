"""Saves and resumes runs: checkpoints, weights, shards, and their files.

Start reading at `checkpoint.py` (`save_state`, `load_state`), then `contents.py` (file by file). How models and
optimizers lie in its files is in `layouts/`; the files of weights are in `weights.py`. `serialization.py` writes other
files so that they can't run code. `all_ranks.py` takes steps that fail on all ranks if they fail on one, and
`participants.py` lets rank 0 save without waiting where each rank has all weights.

The loop over `Accelerator.epochs` saves while the training continues: ranks copy their parts (`parts.py`), a thread
writes them (`background.py`), and then a file with their checksums (`manifest.py`). No other training may save to
their folder while this one trains (`folder_lock.py`). Those of remote folders (`remote_path.py`) are uploaded and
downloaded (`transfer.py`). `maintenance.py` lists and removes them, and `layouts/merging.py` makes weights of them.
"""
