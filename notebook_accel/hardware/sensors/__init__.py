"""What drivers measure on devices: `gpu_readings.py` has the interface, and each vendor has a file with its sensors."""
