"""This process among the ranks: its environment, its device and group, and what ranks exchange.

Start reading at `state.py` (`PartialState`), then `collectives.py`.
"""
