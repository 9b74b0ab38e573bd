"""Reads the files of torch.distributed.checkpoint without running code that they might contain.

Torch unpickles the index of the shards, and values that are not tensors, without restrictions. Here an index may name
only the classes that an index consists of and files beside it, and values are read with `weights_only=True`.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import ReadItem

from notebook_accel.train.checkpoints.serialization import load

_ALLOWED = {
    "torch.distributed.checkpoint.metadata": {
        *("Metadata", "MetadataIndex", "StorageMeta", "TensorProperties", "_MEM_FORMAT_ENCODING"),
        *("TensorStorageMetadata", "BytesStorageMetadata", "ChunkStorageMetadata"),
    },
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.serialization": {"_get_layout"},
    "pathlib": {"PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath", "Path"},
    "torch": {"Size", *(name for name, each in vars(torch).items() if isinstance(each, torch.dtype))},
}


class SafeReader(FileSystemReader):
    """Reads an index, and refuses anything that does not belong in one."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        with (Path(self.path) / ".metadata").open("rb") as file:
            metadata: Metadata = _IndexUnpickler(file).load()
        for info in (metadata.storage_data or {}).values():
            if Path(info.relative_path).name != info.relative_path:
                raise pickle.UnpicklingError(f"the index of a checkpoint must not name {info.relative_path!r}")
        metadata.storage_meta = metadata.storage_meta or StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata


class SafePlanner(DefaultLoadPlanner):
    """Loads values after checking that they are plain."""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        load(value)
        value.seek(0)
        super().load_bytes(read_item, value)


class _IndexUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        # Python 3.13 pickles paths under another module name.
        if name not in _ALLOWED.get(module.removesuffix("._local"), ()):
            raise pickle.UnpicklingError(f"the index of a checkpoint must not contain {module}.{name}")
        return super().find_class(module, name)
