"""What a process has open."""

from __future__ import annotations

import subprocess
import sys

CLOSE = """
import os
from notebook_accel.launch.system import descriptors

for number in (3, 7, 200):
    os.dup2(1, number)
del os.closerange  # it may try every number up to the limit
descriptors.close_from(7)
print([number for number in range(256) if os.path.exists(f"/dev/fd/{number}")])
"""


def test_open_descriptors_are_closed_from_a_number_on() -> None:
    ran = subprocess.run([sys.executable, "-c", CLOSE], capture_output=True, text=True, check=True)
    kept = eval(ran.stdout)
    assert {0, 1, 2, 3} <= set(kept)
    assert max(kept) < 7
