"""Patches of other libraries, one file each. Their progress bars and logs become events, and JAX finds its ranks.

`tqdm.py`, `rich.py` and `keras.py` patch progress bars, `trainers.py` the logs of training frameworks, `jax.py` how JAX
finds the ranks, `loader_workers.py` how multiprocessing pickles workers, `python_forks.py` what makes a forked worker
hang, `python_conditions.py` what an interrupt would make wait, `ddp_logger.py` what crashes DDP when ranks compare
their collectives, `dynamo.py` what each rank would do for nothing, `ipython.py` what a rank displays,
`cell_locations.py` how warnings and tracebacks name cells. `gloo_peers.py` checks who connects to a rank,
`store_of_one.py` gives a rank in the notebook's process its store, and `process_group_timeouts.py` removes timeouts
while the user holds a rank. Start reading at `wire/mirrored/on_import.py`: a library is patched when the user's code
imports it, and is never imported in order to be patched.
"""
