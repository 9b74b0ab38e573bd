"""Small functions that code written for Accelerate imports beside `Accelerator`; nothing else in the package uses them.

Start reading at the folder's listing: `device_probes.py` and `package_probes.py` answer "is … available", and each
other file has one subject. `notebook_accel/exports.py` says under which of Accelerate's modules each name is found.
"""
