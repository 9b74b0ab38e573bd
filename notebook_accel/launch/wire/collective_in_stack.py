"""Finds the collective operation that a stack is in, if it is in one.

By the names of torch's files, which a stack that faulthandler wrote has too; nothing of torch is imported or replaced.
"""

from __future__ import annotations

from collections.abc import Iterable

_SHIMS = frozenset({"distributed/c10d_logger.py", "_ops.py", "utils/_contextlib.py"})
"""Files of wrappers around collectives."""
_FILES = {
    "distributed/distributed_c10d.py": "",
    "distributed/rendezvous.py": "",
    "distributed/_functional_collectives.py": "functional collective",
    "distributed/utils.py": "",
    "nn/parallel/distributed.py": "DistributedDataParallel",
}
"""Files whose functions communicate with other ranks, and the name to show; empty for the function's own name."""


def outermost(stack: Iterable[tuple[str, str]]) -> tuple[str, int]:
    """The collective that a stack is in, by the outermost of its functions, and at which place that stands.

    Args:
        stack: The file and the function of each frame, the innermost first.

    Returns:
        Its name and the frame's index; an empty name if the stack is in none.
    """
    found, at = "", -1
    for index, (filename, function) in enumerate(stack):
        file = filename.rpartition("/torch/")[2]
        label = _FILES.get(file)
        if label is not None:
            found, at = label or function.lstrip("_"), index
        elif file not in _SHIMS:
            break
    return found, at


def is_backward(filename: str, function: str) -> bool:
    """Whether a frame called torch's C code that runs a backward pass, with its collectives."""
    return function == "_engine_run_backward" and filename.endswith("/torch/autograd/graph.py")
