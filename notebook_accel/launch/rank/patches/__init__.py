"""Patches of other libraries, a file for each: their bars and logs become events, and they find the ranks.

`tqdm.py`, `rich.py` and `keras.py` patch progress bars, `trainers.py` the logs of training frameworks, `jax.py` how JAX
finds the ranks, `loader_workers.py` how multiprocessing pickles workers. Start reading at `on_import.py`: a library is
patched once it is imported, and never imported for that.
"""
