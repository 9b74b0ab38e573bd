"""What is done to models: precision, compilation, the checks before `prepare`, sizes on the meta device.

Start reading at `precision.py`.
"""
