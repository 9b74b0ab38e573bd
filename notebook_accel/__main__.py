"""`python -m notebook_accel`."""

from notebook_accel.cli.main import run

run()
