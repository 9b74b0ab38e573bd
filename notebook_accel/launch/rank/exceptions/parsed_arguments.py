"""Explains the exit of an `argparse` parser that has read the arguments of the notebook's kernel."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

from notebook_accel.events import Raised


def with_own_arguments(raised: Raised) -> Raised:
    """The exit with where the arguments came from, and what to write; unchanged if it has another cause."""
    is_parser = any(frame.filename.endswith(f"{os.sep}argparse.py") for frame in raised.frames)
    if raised.text != "SystemExit: 2" or not is_parser or "kernel" not in os.path.basename(sys.argv[0]):
        return raised
    return replace(
        raised,
        text=f"{raised.text}\nWithout an argument, parse_args() reads those of the notebook's kernel: "
        f"{' '.join(sys.argv[1:])}. Write parse_args([]) to use the defaults, or give it the arguments that it should "
        "parse, such as parse_args(['--epochs', '3']).",
    )
