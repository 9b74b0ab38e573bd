"""`notebook-accel config`. Start reading at `command.py`; `questions.py` prompts the user."""
