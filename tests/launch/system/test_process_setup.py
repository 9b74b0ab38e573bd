"""What a process of ours does for itself."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import ctypes, os, sys
from notebook_accel.launch.system import own_process

sys.stdout.write("from Python ")
sys.stderr = open(2, "w", closefd=False)  # which holds back what it gets
sys.stderr.write("an error")
ctypes.CDLL(None).printf(b"from C")
own_process.flush()
os._exit(0)
"""


def test_what_python_and_c_have_buffered_is_written_out() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("from Python from C", "an error")
