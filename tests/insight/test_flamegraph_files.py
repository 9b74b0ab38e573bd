"""The file for speedscope, checked against the types that its source declares for the format."""

from __future__ import annotations

from typing import Any

from notebook_accel.events import Frame, Sampled
from notebook_accel.insight import flamegraph

UNITS = {"none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"}


def is_speedscope(document: dict[str, Any]) -> None:
    """Has what `file-format-spec.ts` of speedscope demands of a file with sampled profiles."""
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = document["shared"]["frames"]
    for frame in frames:
        assert isinstance(frame["name"], str)
        assert isinstance(frame["file"], str)
        assert type(frame["line"]) is int
    assert document["profiles"]
    assert document["activeProfileIndex"] in range(len(document["profiles"]))
    for profile in document["profiles"]:
        assert profile["type"] == "sampled"
        assert isinstance(profile["name"], str)
        assert profile["unit"] in UNITS
        assert len(profile["samples"]) == len(profile["weights"]) > 0
        assert all(0 <= index < len(frames) for sample in profile["samples"] for index in sample)
        assert all(weight >= 0 for weight in profile["weights"])
        assert abs(profile["endValue"] - profile["startValue"] - sum(profile["weights"])) < 1e-3


def test_each_stack_is_written_once_with_its_seconds() -> None:
    frames = [Frame("a.py", 1, "train"), Frame("a.py", 5, "step"), Frame("a.py", 2, "train")]
    sampled = Sampled(1, frames, [-1, 0, -1], [0, 750_000, 250_000], 100, 1.0, 0.0, 0.0)
    tree = flamegraph.call_tree([sampled])
    document = flamegraph.speedscope_document("train()", {"rank 0": tree})
    is_speedscope(document)
    (profile,) = document["profiles"]
    names = [[document["shared"]["frames"][index]["line"] for index in sample] for sample in profile["samples"]]
    assert dict(zip(map(tuple, names), profile["weights"], strict=True)) == {(1, 5): 0.75, (2,): 0.25}
