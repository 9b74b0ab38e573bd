"""Small functions that code written for Accelerate imports beside `Accelerator`; nothing else in the package uses them.

Start reading at the folder's listing: `probes.py` answers "is … available", and each
other file has one subject. `notebook_accel/exports.py` says under which of Accelerate's modules each name is found.
"""
