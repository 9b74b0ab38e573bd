"""The process of a rank: what runs there beside the user's code.

Start reading at `main.py` (what runs at a rank's start and at its end), then `rank.py` (its two threads: the main loop
runs calls, the channel thread sends and receives). `patches/` is what a rank changes in other libraries.
"""
