"""Formats names and numbers for people."""

from __future__ import annotations

import math
import re
import string
import time
from collections.abc import Iterator, Sequence

from notebook_accel.rank_spans import spans

_PREFIXES = ("", "k", "M", "G", "T", "P")
_SPARKS = "▁▂▃▄▅▆▇█"
_ZEROS = re.compile(r"(e-?)[+0]+")
"""The sign and zeros to drop from an exponent, as in `3e-05`, which becomes `3e-5`."""
_NO_FUNCTION = ("]", ".py", ".ipynb", "/")
"""Endings of names that are not functions: cells, scripts, notebooks, folders."""


def title(name: str) -> str:
    """A job by what it runs: `train()`, or `In[3]` for a cell, `train.py` or `-m train` for a script."""
    return name if " " in name or name.endswith(_NO_FUNCTION) else f"{name}()"


def resume_commands(job_id: str) -> str:
    """What continues a job from its checkpoints, after the word *run*."""
    return f"%accelerate resume {job_id} in a notebook, or notebook-accel resume {job_id} in a terminal"


def shortened(text: str, most: int) -> str:
    """The text, cut to `most` characters with an ellipsis at its end."""
    return text if len(text) <= most else text[: most - 1] + "…"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """A line for each row, with its cells in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def duration(seconds: float) -> str:
    """`0.4 s`, `12 s`, `2:05`, `1:02:05`."""
    return f"{seconds:.1f} s" if seconds < 9.95 else clock(seconds)


def date(at: float, *, seconds: bool = False) -> str:
    """`2026-11-27 18:05` for a time since the epoch."""
    return time.strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M", time.localtime(at))


def clock(seconds: float) -> str:
    """A duration in whole seconds, for views that are redrawn while a job runs."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def size(count: float, *, exact: bool = False) -> str:
    """`3 kB`, `512 MB`, `1.5 GB`, in units of 1024; what is not zero is 1 kB at least.

    Args:
        count: The bytes.
        exact: Whether to show three digits at least, and less than 1 kB in bytes, so that sizes can be told apart.
    """
    if exact and count < 2**10:
        return f"{count:.0f} B"
    unit, factor = ("kB", 2**10) if 0 < count < 2**20 else ("MB", 2**20) if count < 2**30 else ("GB", 2**30)
    number = count / factor
    if exact:
        return f"{number:.3g} {unit}" if number < 999.5 else f"{number:.0f} {unit}"
    return f"{math.ceil(number) if unit == 'kB' else format(number, '.1f' if unit == 'GB' else '.0f')} {unit}"


def count(number: float) -> str:
    """`57`, `12.5`, `99999`, `1.23M`, `1e+21`."""
    if abs(number) < 100_000:
        return f"{number:g}" if number == int(number) else f"{number:.1f}"
    power = int(math.log10(abs(number)) // 3)
    if power >= len(_PREFIXES):
        return f"{number:.3g}"
    return f"{number / 1000**power:.2f}{_PREFIXES[power]}"


def rate(per_second: float, unit: str) -> str:
    """`12.1 it/s`, `118.20 MB/s`, or `2.50 s/it` for what is slow."""
    if per_second < 1:
        return f"{1 / per_second:.2f} s/{unit}"
    number = f"{per_second:.1f}" if per_second < 1000 else count(round(per_second))
    if unit == "B" and number[-1] in _PREFIXES:
        return f"{number[:-1]} {number[-1]}{unit}/s"
    return f"{number} {unit}/s"


def percent(fraction: float) -> str:
    """`57%`; rounded down, so that only the end is 100%."""
    return f"{math.floor(100 * fraction + 1e-9)}%"


def value(number: float) -> str:
    """Four significant digits, with an exponent only if it helps: `0.4881`, `12345`, `3e-5`."""
    text = f"{number:.0f}" if 1e4 <= abs(number) < 1e7 else f"{number:.4g}"
    return _ZEROS.sub(r"\1", text)


def blocks(fraction: float, width: int) -> str:
    """A bar of the given number of characters."""
    filled = int(width * min(1.0, max(0.0, fraction)) + 1e-9)
    return "█" * filled + "░" * (width - filled)


def spark(values: list[float]) -> str:
    """A line of finite values as one character each."""
    if not values:
        return ""
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return "".join(_SPARKS[min(7, int(8 * ((each - low) / span)))] for each in values)


def label(template: str | None, first: int, local_size: int, world_size: int, rank: int | str) -> str:
    """The label of lines.

    Args:
        template: The user's template, if it is not the usual one.
        first: The first rank that this driver runs.
        local_size: Ranks on each node.
        world_size: Ranks on all nodes.
        rank: Whose lines: a global rank, or several such as `0-3`.
    """
    if template is None:
        return f"[{rank}] " if world_size > 1 else ""
    local = spans({(each - first) % local_size for each in _numbers(str(rank))})
    found = string.Template(template).safe_substitute(role_name="default", rank=rank, local_rank=local)
    return f"{found} " if found else ""


def _numbers(ranks: str) -> Iterator[int]:
    """0, 1, 2 and 5 for `0-2,5`."""
    for span in ranks.split(","):
        first, _, last = span.partition("-")
        yield from range(int(first), int(last or first) + 1)
