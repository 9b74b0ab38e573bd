"""The configuration file: YAML with the keys of Hugging Face Accelerate's, optional to read, written atomically."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from notebook_accel.config import keys as table
from notebook_accel.config.environment_variables import FILE_VARIABLE
from notebook_accel.config.keys import to_fields
from notebook_accel.config.layers import Layer
from notebook_accel.errors import ConfigurationError

_parsed: tuple[tuple[Path, int, int, int], Mapping[str, Any]] | None = None
"""A cache of the file that was read last: its identity, and its checked keys."""


def location(environ: Mapping[str, str]) -> Path:
    """The path of the file, whether or not it exists."""
    if environ.get(FILE_VARIABLE):
        return Path(environ[FILE_VARIABLE]).expanduser()
    return user_folder("config") / "config.yaml"


def user_folder(kind: str) -> Path:
    """This user's folder of the package for `config` or `state`.

    A user ID without an entry in the user database, as containers may have, has no home unless HOME names one. Then it
    is a folder that cannot exist: nothing is read, and what would be written says so. A folder for temporary files
    would not do, since any other user could put a configuration there.
    """
    import platformdirs

    try:
        found: str = getattr(platformdirs, f"user_{kind}_dir")("notebook-accel", appauthor=False)
    except RuntimeError:
        found = "~"
    return Path(os.devnull, "no-home", "notebook-accel") if found.startswith("~") else Path(found)


def from_file(environ: Mapping[str, str], path: Path | None = None) -> Layer:
    """The layer of the file; empty if there is no file.

    Args:
        environ: May name a file in place of the usual one; that file must exist.
        path: A file in place of both; it must exist.

    Raises:
        ConfigurationError: It cannot be read, or has settings that are not valid.
    """
    where = path or location(environ)
    found = read(where)
    if found is None:
        if path is not None or environ.get(FILE_VARIABLE):
            if path is not None:
                raise ConfigurationError(
                    f"{where}: there is no such file; notebook-accel config --config_file {where} creates it"
                )
            raise ConfigurationError(
                f"{FILE_VARIABLE} names {where}, but there is no such file: notebook-accel config creates it, and so "
                "does %accelerate --save in a notebook"
            )
        return Layer("file")
    with _with_path(where):
        return layer(found, where)


def layer(found: Mapping[str, Any], path: Path) -> Layer:
    """The layer of a file that has these checked keys.

    Raises:
        ConfigurationError: They contradict each other.
    """
    fields = to_fields(found)
    if "notices" in fields:
        texts, key = fields["notices"]
        fields["notices"] = (tuple(f"{path}: {text}" for text in texts), key)
    return Layer(
        "file",
        {name: value for name, (value, _) in fields.items()},
        {name: f"{key} in {path}" for name, (_, key) in fields.items()},
    )


def read(path: Path) -> Mapping[str, Any] | None:
    """The checked keys of a file, those of its sections beside the others; `None` if there is no file.

    Raises:
        ConfigurationError: It cannot be read, or a key or its value is not valid.
    """
    global _parsed  # a launch does not parse the file again unless it changed
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigurationError(f"{path} can't be read: {error.strerror}") from error
    identity = (path, status.st_mtime_ns, status.st_size, status.st_ino)
    if _parsed is None or _parsed[0] != identity:
        with _with_path(path):
            _parsed = (identity, _checked(_parse(path)))
    return _parsed[1]


def write(path: Path, keys: Mapping[str, Any]) -> None:
    """Writes a file atomically. Only its user may read it: it may hold environment variables.

    Raises:
        ConfigurationError: It cannot be written.
    """
    import yaml

    nested: dict[str, Any] = {table.SCHEMA_KEY: table.SCHEMA}
    for key in sorted(keys):
        group = next((each for each in table.GROUPS if key.startswith(each.removesuffix("config"))), None)
        place = nested.setdefault(group, {}) if group else nested
        place[key] = keys[key]
    text = "# Settings of notebook-accel; `notebook-accel config show` explains them.\n" + yaml.safe_dump(
        nested, sort_keys=False
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_atomically(path, text)
    except OSError as error:
        raise ConfigurationError(
            f"{path} can't be written: {error.strerror}. Make its folder writable, or name another file with "
            f"{FILE_VARIABLE} or --config_file."
        ) from error


def _write_atomically(path: Path, text: str) -> None:
    target = path.resolve()  # write through a symbolic link, rather than replace it
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _parse(path: Path) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """Refuses aliases, with which a short file may hold more values than memory can."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise ConfigurationError("it has an alias (`*name`): write out the value")
            return super().compose_node(parent, index)

    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader)
    except OSError as error:
        raise ConfigurationError(f"it can't be read: {error.strerror}") from error
    except ConfigurationError:
        raise
    # Values with a tag, such as `!!int x` or the date 2001-99-99, raise whatever Python raises.
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigurationError(f"it is not valid YAML: {' '.join(str(error).split())}") from error


def _checked(content: Any) -> dict[str, Any]:
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise ConfigurationError("it must have lines such as `num_processes: 2`")
    if "compute_environment" in content:  # checked first: files for other environments have keys of their own
        table.check("compute_environment", content["compute_environment"], "compute_environment")
    version = content.pop(table.SCHEMA_KEY, table.SCHEMA)
    if not isinstance(version, int) or version < 1:
        raise ConfigurationError(f"{table.SCHEMA_KEY}: {version!r} must be {table.SCHEMA}")
    if version > table.SCHEMA:
        raise ConfigurationError(
            f"a newer version of notebook-accel has written it ({table.SCHEMA_KEY}: {version}; this one reads "
            f"{table.SCHEMA}): upgrade with pip install -U notebook-accel, or name another file with {FILE_VARIABLE}"
        )
    if content.pop("fp16", None):  # as old versions of Accelerate wrote it
        content.setdefault("mixed_precision", "fp16")
    for group in table.GROUPS:
        inner = content.pop(group, None) or {}
        prefix = group.removesuffix("config")
        strange = [key for key in inner if not str(key).startswith(prefix)] if isinstance(inner, dict) else [inner]
        if strange:
            raise ConfigurationError(f"{group} has keys that begin with {prefix}, and not {strange[0]!r}")
        content |= inner
    found = {key: table.check(key, value, key) for key, value in content.items()}
    if str(content.get("fsdp_version")) == "2":
        table.refuse_fsdp1_keys(found)
    return found


@contextlib.contextmanager
def _with_path(path: Path) -> Any:
    """Puts the path of the file in front of the message of an error."""
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from None
