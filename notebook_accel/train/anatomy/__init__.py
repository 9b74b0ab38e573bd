"""What each training step spends its time on, measured while it runs.

clocks.py       ─ which clock a device has
step_clock.py   ─ adds up the time of each part of a step, on the CPU's clock
device_clock.py ─ the same on a CUDA device, from events on its stream
unused_parameters.py ─ whether DDP searches for unused parameters in vain
measured.py     ─ what marks where copies and forward passes begin and end
"""
