"""Arguments that an earlier kernel has pickled, passed to a function of now."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EARLIER = """
import pickle, sys
from notebook_accel.launch.wire import payload
import numpy as np
RATE = 1
class Size:
    def __init__(self, x): self.x = x
def scale(x): return RATE * x
def unknown(x): return RATE + x
packed = payload.pack_arguments((Size(3), np.arange(100_000)), {"by": scale, "then": unknown})
pickle.dump(packed, open(sys.argv[1], "wb"))
"""
NOW = """
import pickle, sys
from notebook_accel.launch.wire.payload import WithArguments
RATE = 10
def scale(x): return 100 * x
def train(size, array, by, then):
    return type(size).__name__, scale(1), then(by(size.x)), int(array[-1]), "unknown" in globals()
call = WithArguments(train, pickle.load(open(sys.argv[1], "rb")))
print(call.__name__, call(), RATE)
"""


def test_they_are_those_of_then_and_what_the_notebook_defines_is_that_of_now(tmp_path: Path) -> None:
    path = str(tmp_path / "arguments")
    subprocess.run([sys.executable, "-c", EARLIER, path], check=True)
    done = subprocess.run([sys.executable, "-c", NOW, path], check=True, capture_output=True, text=True)
    # Functions that are arguments run with the globals of now.
    assert done.stdout.strip() == "train ('Size', 100, 40, 99999, True) 10"
