"""What runs in a rank, beside the user's code.

Start reading at `main.py` (how the process comes to be), then `rank.py` (takes calls, runs them, reports).
"""
