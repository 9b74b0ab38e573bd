"""What a rank reports of its progress: metrics and bars, from `report` and from other libraries, until they are sent.

Start reading at `coalescer.py`, which collects them and sends them at a pace.
"""
