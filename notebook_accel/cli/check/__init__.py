"""`notebook-accel test`: `command.py`, then `probes.py`, the table of checks; `rank_checks.py` runs in each rank."""
