"""Runs Accelerate's own installed test scripts with this package under Accelerate's name."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

import notebook_accel
from notebook_accel import AcceleratorState, PartialState, gather
from notebook_accel.cli import checkpoints

INSTALLED = Path(importlib.util.find_spec("accelerate").origin).parent  # type: ignore[arg-type, union-attr]


@contextlib.contextmanager
def names() -> Iterator[None]:
    """Within the block, `import accelerate` and its modules give those of this package."""
    theirs = {name: sys.modules.pop(name) for name in [*sys.modules] if name.partition(".")[0] == "accelerate"}
    ours = "notebook_accel"
    sys.modules["accelerate"] = notebook_accel
    for name in [*sys.modules]:
        if name.startswith(f"{ours}.") and isinstance(sys.modules[name], type(notebook_accel.utils)):
            sys.modules["accelerate" + name.removeprefix(ours)] = sys.modules[name]
    for name in ("test_utils", "test_utils.testing"):
        sys.modules[f"accelerate.{name}"] = helpers()
    sys.modules["accelerate.test_utils.training"] = sys.modules["accelerate.test_utils"]
    sys.modules["accelerate.commands.merge"] = merge_command()
    AcceleratorState._shared_state = {}  # type: ignore[attr-defined]  # empty, as before there is an Accelerator
    try:
        yield
    finally:
        del AcceleratorState._shared_state  # type: ignore[attr-defined]
        for name in [*sys.modules]:
            if name.partition(".")[0] == "accelerate":
                del sys.modules[name]
        sys.modules.update(theirs)


def helpers() -> ModuleType:
    """What the scripts use of `accelerate.test_utils`: its data set and model, and small functions."""
    module = ModuleType("accelerate.test_utils")
    training = load(INSTALLED / "test_utils" / "training.py")
    module.RegressionDataset = training.RegressionDataset  # type: ignore[attr-defined]
    module.RegressionModel = training.RegressionModel  # type: ignore[attr-defined]
    module.are_the_same_tensors = are_the_same_tensors  # type: ignore[attr-defined]
    module.assert_exception = assert_exception  # type: ignore[attr-defined]
    module.require_bnb = lambda function: function  # type: ignore[attr-defined]
    module.torch_device = "cpu"  # type: ignore[attr-defined]
    return module


def merge_command() -> ModuleType:
    """`accelerate merge-weights`, which all ranks call, as `notebook-accel merge-weights` on one of them."""

    def call(arguments: list[str]) -> None:
        if PartialState().is_main_process:
            checkpoints.merge_weights.main(arguments, standalone_mode=False)
        PartialState().wait_for_everyone()

    module = ModuleType("accelerate.commands.merge")
    parser = SimpleNamespace(parse_args=lambda arguments: arguments)
    module.merge_command_parser = lambda: parser  # type: ignore[attr-defined]
    module.merge_command = call  # type: ignore[attr-defined]
    return module


def load(path: Path) -> Any:
    """A module of its own from a file."""
    spec = importlib.util.spec_from_file_location(f"mapped_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def script(name: str) -> Any:
    """One of Accelerate's test scripts, with this package's names."""
    with names():
        return load(INSTALLED / "test_utils" / "scripts" / f"{name}.py")


def are_the_same_tensors(tensor: torch.Tensor) -> bool:
    """Whether all ranks hold the same."""
    every = gather(tensor.clone()[None])
    return all(torch.equal(each, tensor.cpu()) for each in every.cpu())


def assert_exception(kind: type[Exception], text: str | None = None) -> Any:
    """A block that has to raise."""
    return pytest.raises(kind, match=None if text is None else re.escape(text))


class Rows:
    """A data set with the methods of the `datasets` library that are used to divide it."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    @classmethod
    def from_list(cls, rows: list[dict[str, Any]]) -> Rows:
        return cls(rows)

    def select(self, indices: Any) -> Rows:
        if isinstance(indices, range) and indices.start >= len(self):
            raise IndexError(f"index {indices.start} is out of range")  # as the library, even if the range is empty
        return Rows([self._rows[index] for index in indices])

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return [row[key] for row in self._rows]
        if isinstance(key, slice):  # columns, as the library has it
            return {name: [row[name] for row in self._rows[key]] for name in self._rows[0]}
        return self._rows[key]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows)
