"""An object store in a folder, as a file system of fsspec: no folders, no renames, and it fails when it is told to.

`bucket://name/key` is one file in `$OBJECT_STORE`, which appears when it is complete. A file `$OBJECT_STORE.fails`
makes operations fail on keys that contain its text, or on all if it is empty. Writes are logged in `$OBJECT_STORE.log`.
There is no bucket `absent` until `makedirs` makes it, as that of s3fs does.
"""

from __future__ import annotations

import io
import os
import urllib.parse
from pathlib import Path
from typing import Any

import fsspec
from fsspec.spec import AbstractFileSystem

PROTOCOL = "bucket"
ABSENT = "absent"


class ObjectStore(AbstractFileSystem):  # type: ignore[misc]
    protocol = PROTOCOL

    @property
    def _root(self) -> Path:
        return Path(os.environ["OBJECT_STORE"])  # fsspec uses an instance again, also for another test

    def _file(self, path: str) -> Path:
        fails = Path(f"{self._root}.fails")
        if fails.exists() and fails.read_text() in path:
            raise PermissionError(f"the store refuses {path}")
        return self._root / urllib.parse.quote(self._strip_protocol(path), safe="")

    def _objects(self) -> dict[str, int]:
        self._file("")
        return {urllib.parse.unquote(each.name): each.stat().st_size for each in self._root.iterdir()}

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        del options
        prefix = self._strip_protocol(path) + "/"
        found: dict[str, dict[str, Any]] = {}
        for key, size in self._objects().items():
            if key.startswith(prefix):
                name, slash, _ = key.removeprefix(prefix).partition("/")
                kind = {"type": "directory", "size": 0} if slash else {"type": "file", "size": size}
                found[name] = {"name": prefix + name, **kind}
        if not found:
            return [self.info(path)] if detail else [self.info(path)["name"]]
        return list(found.values()) if detail else [each["name"] for each in found.values()]

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        del options
        key, objects = self._strip_protocol(path), self._objects()
        if key in objects:
            written = self._file(key).stat().st_mtime
            return {"name": key, "type": "file", "size": objects[key], "mtime": written}
        if any(each.startswith(f"{key}/") for each in objects):
            return {"name": key, "type": "directory", "size": 0}
        raise FileNotFoundError(path)

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        del options
        file = self._file(path)
        if self._strip_protocol(path).startswith(f"{ABSENT}/") and not self._file(ABSENT).exists():
            raise FileNotFoundError("the bucket does not exist")
        return _Upload(file) if mode == "wb" else file.open("rb")

    def rm_file(self, path: str) -> None:
        self._file(path).unlink()
        _log(self._root, f"removed {self._strip_protocol(path)}")

    def _rm(self, path: str) -> None:
        self.rm_file(path)

    def mv(self, *args: Any, **options: Any) -> None:
        raise NotImplementedError("object stores cannot rename")

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        if self._strip_protocol(path).startswith(ABSENT):
            self._file(ABSENT).touch()


class _Upload(io.BytesIO):
    def __init__(self, file: Path) -> None:
        super().__init__()
        self._target = file

    def close(self) -> None:
        if not self.closed:
            staged = self._target.parent.with_suffix(f".{os.getpid()}")
            staged.write_bytes(self.getvalue())
            os.replace(staged, self._target)
            _log(self._target.parent, f"wrote {urllib.parse.unquote(self._target.name)}")
        super().close()


def _log(root: Path, line: str) -> None:
    with open(f"{root}.log", "a") as log:
        log.write(f"{line}\n")


def register(folder: Path) -> None:
    """Makes the store available in this process, and tells the ranks that it launches where it is."""
    os.environ["OBJECT_STORE"] = str(folder)
    folder.mkdir(exist_ok=True)
    fsspec.register_implementation(PROTOCOL, ObjectStore, clobber=True)
