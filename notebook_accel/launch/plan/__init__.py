"""From a configuration and the hardware to the ranks to start. Runs in the driver, and starts nothing.

Start reading at `plan.py`; `environment.py` is what each rank finds in its environment.
"""
