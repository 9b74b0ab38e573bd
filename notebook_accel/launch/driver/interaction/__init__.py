"""What a rank waits for the user to do, while the other ranks run on.

prompts.py ─ answers to `input()` and pdb; debug_relay.py ─ the notebook's debugger
"""
