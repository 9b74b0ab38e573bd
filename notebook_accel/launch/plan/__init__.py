"""Decides which ranks to start, from the configuration and the hardware. Runs in the driver and starts nothing.

Start reading at `plan.py`; `environment.py` makes each rank's environment variables.
"""
