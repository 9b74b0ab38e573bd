"""What debug mode does before each collective: ranks tell one another what they are about to call, and with what.

Ranks that enter a collective with different tensors, or that enter different collectives, hang, crash in gloo, or mix
their values up without an error. Here each rank first sends a description of its call to all others, in a collective
that is the same for every operation, so that it works whatever the ranks are about to do. They all see the same
descriptions, so all of them raise the same error, and none is left waiting.
"""

from __future__ import annotations

import contextlib
import dataclasses
import linecache
import os
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from notebook_accel.errors import DistributedOperationException
from notebook_accel.rank_spans import named
from notebook_accel.train.ranks.communicator import Communicator
from notebook_accel.train.tensors import pytree

_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "")
_LIBRARIES = tuple(os.path.join(sysconfig.get_paths()[name], "") for name in ("stdlib", "purelib", "platlib"))
_MOST = 8
"""How many differences an error lists: with hundreds of parameters, the first ones tell enough."""
_MISSING = "missing"


@dataclasses.dataclass(frozen=True)
class Call:
    """What one rank is about to call."""

    operation: str
    """With the arguments that must be the same on all ranks: `reduce(reduction='sum')`."""
    leaves: Mapping[str, str]
    """By path, such as `['logits'][1]`, in the order in which they are exchanged: `float32 (4, 10)`."""
    location: str
    """The user's line: `train.py line 12 in step: accelerator.gather(outputs)`."""


def compare(communicator: Communicator, operation: str, data: Any = (), group: Any = None, sizes: bool = True) -> None:
    """Checks that all ranks of the group are about to make the same call.

    Args:
        communicator: How this rank reaches the others.
        operation: Its name, with the arguments that must be the same on all ranks.
        data: The tree of tensors that this rank passes; empty for an operation that takes anything.
        group: The ranks; `None` for all.
        sizes: Whether the tensors need the same sizes, or only the same number of dimensions.

    Raises:
        DistributedOperationException: The calls differ. It is raised on all ranks.
    """
    gathered = communicator.all_gather_objects(Call(operation, _describe_leaves(data, sizes), _location()), group)
    numbers = range(len(gathered)) if group is None else dist.get_process_group_ranks(group)
    calls = dict(zip(numbers, gathered, strict=True))
    if len({call.operation for call in calls.values()}) > 1:
        lines = _by_text({rank: f"{call.operation} at {call.location}" for rank, call in calls.items()})
        raise DistributedOperationException(
            f"the ranks are about to run different operations:{_indented(lines)}\nMake all ranks run the same "
            "operations in the same order, for instance outside of `if` blocks that only some ranks enter."
        )
    differences = _differences(calls)
    if differences:
        located = _by_text({rank: call.location for rank, call in calls.items()})
        raise mismatch(operation, [*differences, "Called at", *(f"  {line}" for line in located)], sizes)


def mismatch(operation: str, lines: Iterable[str], sizes: bool = True) -> DistributedOperationException:
    """The error for tensors that differ between ranks.

    Args:
        operation: The collective.
        lines: Which rank has what.
        sizes: Whether it needs the same sizes, or only the same number of dimensions.
    """
    needed = "shapes and types" if sizes else "number of dimensions, and of the same types,"
    advice = "Pad them with pad_across_processes first, use" if sizes else "Use"
    return DistributedOperationException(
        f"{operation} needs tensors of the same {needed} on all ranks, but they differ:{_indented(lines)}\n{advice} "
        "gather_object for objects other than tensors, and make all ranks run the same operations in the same order."
    )


def describe(leaf: torch.Tensor, sizes: bool = True) -> str:
    """`float32 (4, 10)`, with the kind of device if it is not the CPU."""
    dimensions = f"with {leaf.dim()} dimension{'s' * (leaf.dim() != 1)}"
    shape = str(tuple(leaf.shape)) if sizes and not leaf.is_nested else dimensions
    where = "" if leaf.device.type == "cpu" else f" on {leaf.device.type}"
    return f"{str(leaf.dtype).removeprefix('torch.')} {shape}{where}"


def _describe_leaves(data: Any, sizes: bool) -> dict[str, str]:
    """What is at each path of a tree: its tensors, its other leaves by their type, and the types of its nodes."""
    found: dict[str, str] = {}

    def visit(path: str, value: Any) -> None:
        found[path] = f"a {type(value).__name__}"  # first, so that a node stands before its children
        if isinstance(value, torch.Tensor):
            found[path] = describe(value, sizes)
            return

        def child(key: Any, each: Any) -> Any:
            visit(f"{path}{pytree.step(value, key)}", each)
            return each

        pytree.with_children(value, child)

    visit("", data)
    return found


def _differences(calls: Mapping[int, Call]) -> list[str]:
    """A line for each path at which ranks have something different; below such a path, nothing is compared."""
    found: dict[str, str] = {}
    for path in dict.fromkeys(path for call in calls.values() for path in call.leaves):
        texts = {rank: call.leaves.get(path, _MISSING) for rank, call in calls.items()}
        if len(set(texts.values())) > 1 and not any(_is_below(path, above) for above in found):
            found[path] = f"{path or 'the argument'}: {'; '.join(_by_text(texts, of='{1} on {0}'))}"
    lines = list(found.values())
    if len(lines) > _MOST:
        lines[_MOST:] = [f"and {len(lines) - _MOST} more"]
    # The leaves of a tree are exchanged one after the other, so an order of keys that differs would mix them up.
    orders = {rank: ", ".join(filter(None, call.leaves)) for rank, call in calls.items()}
    if not lines and len(set(orders.values())) > 1:
        lines = [f"the order: {line}" for line in _by_text(orders)]
    return lines


def _is_below(path: str, above: str) -> bool:
    return path.startswith(above) and path[len(above)] in "[."


def _by_text(texts: Mapping[int, str], of: str = "{0}: {1}") -> list[str]:
    """A line for each text, with the ranks that have it: `ranks 1-3: float32 (4, 10)`."""
    ranks: dict[str, list[int]] = {}
    for rank, text in texts.items():
        ranks.setdefault(text, []).append(rank)
    return [of.format(_name_ranks(members), text) for text, members in ranks.items()]


def _name_ranks(ranks: list[int]) -> str:
    """`rank 2`, or `ranks 0, 2-5`."""
    return named(ranks).replace(",", ", ")


def _indented(lines: Iterable[str]) -> str:
    return "".join(f"\n    {line}" for line in lines)


def _location() -> str:
    """The line at `user_frame`, with its source."""
    frame = user_frame()
    return "an unknown line" if frame is None else name_line(frame)


def user_frame() -> FrameType | None:
    """The innermost frame of the user's code that led here; that of a library if there is none of the user's."""
    outside: FrameType | None = None
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        filename = frame.f_code.co_filename
        if not filename.startswith((_PACKAGE, "<frozen ", contextlib.__file__)):
            outside = outside or frame
            if not filename.startswith(_LIBRARIES):
                return frame
        frame = frame.f_back
    return outside


def name_line(frame: FrameType) -> str:
    """`train.py line 12 in step: accelerator.gather(outputs)`."""
    code, number = frame.f_code, frame.f_lineno
    source = linecache.getline(code.co_filename, number, frame.f_globals).strip()
    # A cell is not a file; its source is in `linecache`, under a name that says nothing to the user.
    path = os.path.abspath(code.co_filename)
    file = path.removeprefix(os.path.join(os.getcwd(), "")) if os.path.exists(path) else "cell"
    return f"{file} line {number} in {code.co_name}{': ' if source else ''}{source}"
