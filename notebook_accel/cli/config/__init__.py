"""`notebook-accel config`. Start reading at `command.py`; `questions.py` is what it asks."""
