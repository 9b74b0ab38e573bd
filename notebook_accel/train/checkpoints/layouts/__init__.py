"""How the states of models and optimizers lie in the files of a checkpoint.

    layout           saved by          written by            read by
    replicated.py    DDP, one device   one rank              every rank, as a whole
    sharded.py       FSDP2             every rank, its part  any number of ranks
    gathered.py      FSDP2, if asked   rank 0                every rank, its part

A gathered checkpoint has the files of a replicated one. `merging.py` makes one set of weights of any of them, in a
single process. `safe_reader.py` reads shards without running code that is in them.
"""
