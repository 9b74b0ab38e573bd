"""What has an entry for each sample is counted, taken, and joined, whatever its type."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest
import torch

from notebook_accel.train.tensors import rows
from notebook_accel.train.tensors.rows import Reading, UnevenRowsError
from tests.train.data.loaders import Encoding, Pair, Sample

INPUTS, LABELS = torch.arange(12).reshape(4, 3), torch.arange(4)
IMAGES = [torch.full((3, 2, 2), number) for number in range(4)]
BOXES = [{"boxes": torch.ones(count, 4)} for count in (1, 2, 3, 2)]

BATCHES = {
    "a tensor": (INPUTS, lambda found: found[:, 0].div(3).tolist()),
    "inputs and labels": ([INPUTS, LABELS], lambda found: found[1].tolist()),
    "texts": ({"texts": list("0123"), "inputs": INPUTS}, lambda found: [int(text) for text in found["texts"]]),
    "texts in a tuple": ((LABELS, tuple("0123")), lambda found: [int(text) for text in found[1]]),
    "bytes": ({"b": [b"0", b"1", b"2", b"3"]}, lambda found: [int(each) for each in found["b"]]),
    "numbers": ([0, 1, 2, 3], lambda found: found),
    "an array": ({"a": np.arange(4), "x": INPUTS}, lambda found: found["a"].tolist()),
    "a deque": ({"d": deque(range(4)), "x": INPUTS}, lambda found: list(found["d"])),
    "images of one size": ((IMAGES, LABELS), lambda found: [int(image[0, 0, 0]) for image in found[0]]),
    "images and boxes": ((tuple(IMAGES), BOXES), lambda found: [int(image[0, 0, 0]) for image in found[0]]),
    "records": ([{"id": number, "text": "x"} for number in range(4)], lambda found: [each["id"] for each in found]),
    "a named tuple": (Pair(INPUTS, list(range(4))), lambda found: found.labels),
    "a dataclass": (Sample(LABELS, "of all"), lambda found: found.inputs.tolist()),
    "an encoding": (Encoding({"ids": LABELS}, [0, 1, 2, 3]), lambda found: found.encodings),
}


@pytest.mark.parametrize("name", BATCHES)
def test_rows_are_counted_taken_and_joined_whatever_has_them(name: str) -> None:
    batch, numbers = BATCHES[name]
    assert rows.count(batch) == 4
    for chosen, expected in ((slice(1, 3), [1, 2]), ([3, 0, 0], [3, 0, 0])):
        part = rows.take(batch, chosen, Reading(4))
        assert type(part) is type(batch)
        assert numbers(part) == expected
    parts = [rows.take(batch, each, Reading(4)) for each in (slice(2), slice(2, 4))]
    joined = rows.join(parts, [Reading(2), Reading(2)])
    assert numbers(joined) == [0, 1, 2, 3]
    assert numbers(rows.slice_tensors(batch, slice(1, 2))) == [1]


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"texts": ["a", "b", "c"], "inputs": INPUTS}, r"batch\['texts'\] has 3 rows, and batch\['inputs'\] has 4"),
        ({"weight": 0.5, "name": "x"}, "nothing in this dict has an entry for each sample"),
    ],
)
def test_a_batch_whose_rows_are_unclear_is_refused_by_name(batch: Any, message: str) -> None:
    assert rows.count(batch) is None
    with pytest.raises(UnevenRowsError, match=message):
        rows.measure(batch)


def test_what_belongs_to_all_rows_must_be_the_same_to_be_joined() -> None:
    same = {"x": LABELS, "name": "a", "scale": torch.tensor(2.0)}
    assert rows.concatenate([same, same])["x"].tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    for other in ({"name": "b"}, {"scale": torch.tensor(3.0)}):
        with pytest.raises(UnevenRowsError, match=r"batch\['\w+'\], which isn't one value for each sample, differs"):
            rows.concatenate([same, same | other])
    with pytest.raises(UnevenRowsError, match=r"batch\['x'\] can't be divided or joined \(Sizes of tensors"):
        rows.concatenate([{"x": INPUTS}, {"x": INPUTS[:, :2]}])
    with pytest.raises(UnevenRowsError, match=r"batch\['x'\] can't be joined"):
        rows.concatenate([{"x": np.ones((2, 2))}, {"x": np.ones((2, 3))}])
    with pytest.raises(UnevenRowsError, match="different structures"):
        rows.concatenate([{"x": LABELS}, {"y": LABELS}])


def test_tensors_are_joined_along_any_dimension() -> None:
    assert rows.concatenate([{"x": INPUTS}, {"x": INPUTS}], dim=1)["x"].shape == (4, 6)
    assert rows.concatenate([{"a": torch.ones(2), "b": "text"}])["b"] == "text"
