"""`python -m notebook_accel`."""

from notebook_accel.cli.entry import run

run()
