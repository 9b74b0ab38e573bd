"""Samples in the file format of https://www.speedscope.app, which also runs without a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from notebook_accel.events import Frame
from notebook_accel.launch.job.flamegraphs.call_tree import Call
from notebook_accel.launch.wire import cell_names

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def document(title: str, trees: Mapping[str, Call]) -> dict[str, Any]:
    """The content of the file, as JSON.

    Args:
        title: The name of the whole.
        trees: The tree of each profile, by the profile's name.
    """
    frames: dict[tuple[str, int, str], int] = {}
    profiles = [_profile(name, tree, frames) for name, tree in trees.items()]
    return {
        "$schema": _SCHEMA,
        "exporter": "notebook-accel",
        "name": title,
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": name, "file": file, "line": line} for file, line, name in frames]},
        "profiles": profiles,
    }


def _profile(name: str, tree: Call, frames: dict[tuple[str, int, str], int]) -> dict[str, Any]:
    samples: list[list[int]] = []
    weights: list[float] = []
    calls: list[tuple[Call, list[int]]] = [(tree, [])]
    while calls:
        call, stack = calls.pop()
        if call.frame is not None:
            stack = [*stack, frames.setdefault(_key(call.frame), len(frames))]
            if call.own:
                samples.append(stack)
                weights.append(round(call.own, 6))
        calls += [(child, stack) for child in reversed(call.by_time)]
    end = round(sum(weights), 6)
    profile = {"type": "sampled", "name": name, "unit": "seconds", "startValue": 0, "endValue": end}
    return {**profile, "samples": samples, "weights": weights}


def _key(frame: Frame) -> tuple[str, int, str]:
    return cell_names.name_of(frame.filename), frame.lineno, frame.name
