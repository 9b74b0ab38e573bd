"""Finds the collective operation that a stack is in, if it is in one.

It goes by the names of torch's files, so it needs no torch, and also works for a stack that faulthandler has written.
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
    """Finds the outermost of torch's functions in which a stack communicates with other ranks.

    Args:
        stack: The file and the function of each frame, the innermost first.

    Returns:
        The name of the collective and the index of the function's frame; an empty name if the stack is in none.
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
