"""Tools for models, in and after `prepare`.

precision.py         ─ mixed precision; start reading here
compiling.py         ─ `torch.compile`
prepare_checks.py    ─ checks for errors that would show only later
parallel_wrappers.py ─ takes models out of their wrappers
batch_size.py        ─ finds batch sizes that fit
meta.py              ─ sizes of models, computed without memory for them
"""
