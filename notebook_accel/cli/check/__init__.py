"""`notebook-accel test`. Start reading at `command.py`; `probes.py` is the table of checks."""
