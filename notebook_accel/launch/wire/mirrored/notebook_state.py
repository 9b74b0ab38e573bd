"""The state of the notebook that every rank mirrors before it unpickles a call.

Mirrored: working directory, `sys.path`, `sys.argv`; the random states of Python, NumPy and torch (the CPU's state, and
the seed of the devices); and what libraries keep, which `library_settings.py` lists. The environment is mirrored when
the rank starts. Not mirrored: open files, threads, devices, and the values of the notebook's variables that the
function does not use.

Where the notebook has not seeded the generator of NumPy or torch, only rank 0 continues its numbers, and the others
draw their own, as processes that start on their own do: in augmentation and dropout, ranks should not draw the same.
Python's generator does not tell whether it was seeded, so all ranks continue it.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from notebook_accel.errors import ConfigurationError
from notebook_accel.launch.system import installed
from notebook_accel.launch.wire.mirrored import library_settings


@dataclass(frozen=True)
class State:
    """The mirrored state."""

    cwd: str
    path: list[str]
    argv: list[str]
    numbers: RandomStates | None
    """`None` to leave the rank's unchanged."""
    settings: Mapping[str, Any]
    """What libraries keep, as `library_settings` captures it."""


_FOLDERS_VARIABLE = "NOTEBOOK_ACCEL_PLACES"
"""The variable that maps the notebook's folders to their paths on a rank's node; unset if the paths are equal."""
_own_path: list[str] = []
"""The `sys.path` that this rank started with."""


def folders_environment(folders: Mapping[str, str]) -> dict[str, str]:
    """The variable that tells a rank on another node where the notebook's folders are there."""
    return {_FOLDERS_VARIABLE: json.dumps(dict(folders))}


@dataclass(frozen=True)
class RandomStates:
    """The states of the generators of random numbers."""

    random: Any
    numpy: Any
    """`None` if the notebook has not imported NumPy: the rank then draws its own seed."""
    torch: dict[str, Any] | None
    """`None` if the notebook has not imported torch."""
    seeded: frozenset[str] = frozenset()
    """Which of `numpy` and `torch` the notebook has seeded."""


def capture() -> State:
    """Reads the state of this process; imports nothing that is not yet imported.

    Raises:
        ConfigurationError: The working directory is gone.
    """
    numpy: Any = sys.modules.get("numpy.random")
    torch: Any = sys.modules.get("torch")
    numbers = RandomStates(
        random=random.getstate(),
        numpy=None if numpy is None else numpy.get_state(),
        torch=None if torch is None else _capture_torch(torch),
        seeded=_seeded(numpy, torch),
    )
    return replace(capture_paths(), numbers=numbers, settings=library_settings.capture())


_LARGEST_CHOSEN_SEED = 2**53
"""Of the seeds that torch draws for itself, of 64 bits, one in two thousand is not above this."""


def _seeded(numpy: Any, torch: Any) -> frozenset[str]:
    """The libraries whose generators somebody has seeded in this process. In doubt, they count as seeded."""
    found = set()
    # NumPy's keeps the source of the seed that it has drawn itself.
    if numpy is not None and getattr(numpy.mtrand._rand._bit_generator, "_seed_seq", None) is None:
        found.add("numpy")
    if torch is not None:
        seed = torch.initial_seed()
        if seed <= _LARGEST_CHOSEN_SEED or seed >= 2**64 - _LARGEST_CHOSEN_SEED:  # a negative seed is near the end
            found.add("torch")
    return frozenset(found)


def rehearse() -> None:
    """Applies, in a process that will apply a notebook's state, the other kind of random state than its own.

    So the memory that either kind writes to is this process's own by then.

    Raises:
        ConfigurationError: The working directory is gone.
    """
    state = capture()
    assert state.numbers is not None
    apply(replace(state, numbers=replace(state.numbers, numpy=None)))


def capture_paths() -> State:
    """Reads only the working directory, `sys.path` and `sys.argv`.

    Raises:
        ConfigurationError: The working directory is gone.
    """
    return State(cwd=_working_directory(), path=list(sys.path), argv=list(sys.argv), numbers=None, settings={})


def apply(state: State) -> None:
    """Applies the state to this process.

    Raises:
        FileNotFoundError: The working directory is gone.
    """
    folders = os.environ.get(_FOLDERS_VARIABLE)
    if folders is None:
        os.chdir(state.cwd)
        sys.path[:] = state.path
    else:
        _apply_on_other_node(state, json.loads(folders))
    _note_folder()
    sys.argv[:] = state.argv
    _invalidate_user_folders()
    sys.dont_write_bytecode = True
    importlib.machinery.SourceFileLoader.path_stats = _path_stats  # type: ignore[assignment,method-assign]
    if state.numbers is not None:
        _apply_random_states(state.numbers)
    library_settings.apply(state.settings)


def _note_folder() -> None:
    """Has processes that this one spawns look for modules beside the notebook.

    They search the working directory that `multiprocessing` noted when it was imported in place of the empty entry of
    `sys.path`. That is the base server's, or it no longer exists.
    """
    if (process := sys.modules.get("multiprocessing.process")) is not None:
        process.ORIGINAL_DIR = os.getcwd()  # type: ignore[attr-defined]


_python_path_stats = importlib.machinery.SourceFileLoader.path_stats


def _path_stats(loader: importlib.machinery.SourceFileLoader, path: Any) -> Mapping[str, Any]:
    """The source's modification time, in seconds, and its size, which Python compares with those noted in byte code.

    Seconds are too coarse for launches that take milliseconds: after an edit of the same length, the old byte code
    would run. So if the byte code of a user's module is not newer than the source, by the file system's own clock, the
    time that is returned matches none, and the source is compiled again.
    """
    found = _python_path_stats(loader, path)
    if installed.is_installed(path):
        return found
    try:
        written = os.stat(importlib.util.cache_from_source(path)).st_mtime_ns
    except (OSError, NotImplementedError):  # there is none
        return found
    return {**found, "mtime": -1} if os.stat(path).st_ctime_ns >= written else found


def _apply_on_other_node(state: State, folders: Mapping[str, str]) -> None:
    """Sets the paths on another node: of the notebook's `sys.path` only its own folders, then this node's packages."""
    global _own_path
    _own_path = _own_path or list(sys.path)
    os.chdir(folders[state.cwd])
    users = [folders.get(folder, folder) for folder in state.path if folder == "" or folder in folders]
    sys.path[:] = [*users, *(folder for folder in _own_path if folder not in users)]


def _apply_random_states(numbers: RandomStates) -> None:
    rank = int(os.environ.get("RANK") or 0)
    random.setstate(numbers.random)
    if numbers.numpy is not None:
        import numpy as np

        np.random.set_state(numbers.numpy)
        if rank and "numpy" not in numbers.seeded:
            np.random.seed([*np.random.randint(2**32, size=4, dtype=np.uint64).tolist(), rank])
    elif "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if numbers.torch is not None:
        _apply_torch(numbers.torch, rank if "torch" not in numbers.seeded else 0)
    elif "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()


def _invalidate_user_folders() -> None:
    """Makes the import system list the user's folders again.

    It notices a new file by the folder's time, and would miss one that is added in the same tick of the file system's
    clock as its last listing. The folders of Python and of its packages are large, and hardly change within a tick.
    """
    for name in {*_user_folders, *_folders_listed_since()}:
        finder: Any = sys.path_importer_cache.get(name)
        if finder is not None and not installed.is_installed(os.path.join(name, "")):
            finder.invalidate_caches()
    for meta in sys.meta_path:
        if meta is not importlib.machinery.PathFinder and hasattr(meta, "invalidate_caches"):
            meta.invalidate_caches()


def remember_user_folders() -> None:
    """Records, before the forks, which folders are the user's, so that no fork examines all of them.

    There are hundreds, and examining one costs a page of memory that the fork no longer shares.
    """
    global _user_folders, _last_finder
    known = list(sys.path_importer_cache)  # a copy: `is_installed` may import something
    _user_folders = [name for name in known if not installed.is_installed(os.path.join(name, ""))]
    _last_finder = next((finder for finder in reversed(sys.path_importer_cache.values()) if finder is not None), None)


_user_folders: Sequence[str] = ()
_last_finder: object = None


def _folders_listed_since() -> list[str]:
    """The folders that were listed since `remember_user_folders`, the last first."""
    found: list[str] = []
    try:
        for name, finder in reversed(sys.path_importer_cache.items()):
            if finder is not None and finder is _last_finder:  # never found if the cache was cleared
                break
            found.append(name)
    except RuntimeError:  # another thread imports: the folders may have moved
        return list(sys.path_importer_cache)
    return found


def _working_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise ConfigurationError(
            "the notebook's working directory no longer exists, so ranks can't start there: call os.chdir() first"
        ) from None


def _capture_torch(torch: Any) -> dict[str, Any]:
    return {
        "rng": bytes(torch.get_rng_state().tolist()),
        "seed": torch.initial_seed(),
    }


def _apply_torch(state: dict[str, Any], own: int) -> None:
    """Sets torch's generators; with a number `own`, they draw other numbers for each such."""
    import torch

    seed = state["seed"]
    torch.set_rng_state(torch.frombuffer(bytearray(state["rng"]), dtype=torch.uint8))
    if own:
        seed = int(torch.randint(_LARGEST_CHOSEN_SEED, 2**63 - 1, ()).item()) ^ own
        torch.default_generator.manual_seed(seed)
    if os.environ.get("NOTEBOOK_ACCEL_DEVICE") == "cuda":
        torch.cuda.manual_seed_all(seed)  # only queued, until the rank opens its device
