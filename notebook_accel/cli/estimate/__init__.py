"""`notebook-accel estimate-memory`. Start reading at `command.py`; `sizes.py` has the arithmetic."""
