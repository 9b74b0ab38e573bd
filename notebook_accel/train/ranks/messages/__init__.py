"""What ranks send each other outside the training loop.

rank_messages.py  ─ messages from each rank to all others
gathered_texts.py ─ a text of each rank, for all of them
"""
