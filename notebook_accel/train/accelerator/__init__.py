"""`Accelerator`: the facade between a plain training loop and the ranks and devices it runs on.

Start reading at `accelerator.py`; it delegates to the other files here by what a call is about.
"""
