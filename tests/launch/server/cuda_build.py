"""Stands for the modules of a torch that is built for GPUs, which read variables as they are imported."""

from __future__ import annotations

import os

HOME = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
