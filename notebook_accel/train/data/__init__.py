"""Data loaders that yield each rank its share of the samples, on its device.

prepare.py            ─ makes a prepared loader of the user's; start reading here
loader.py             ─ the loader that each rank reads its own share from
dispatching_loader.py ─ the loader that rank 0 reads for all
batch_transfer.py     ─ sends each rank its part of what rank 0 has read
sharding.py           ─ which samples are a rank's share
iterable_shard.py     ─ the same for an iterable dataset
samplers.py           ─ a random sampler that depends on the seed and the epoch only
order.py              ─ the random generators that determine the order
order_comparison.py   ─ compares the order of the ranks in the first epoch
device_transfer.py    ─ moves batches to the device
uneven_inputs.py      ─ samples that can't be divided evenly among the ranks, and metrics of them
cursor.py             ─ where a loader is, and how it is read from there
"""
