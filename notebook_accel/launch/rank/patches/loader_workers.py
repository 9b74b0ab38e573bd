"""Patches multiprocessing so that a rank can spawn workers, such as a DataLoader's, that use what a cell defined.

multiprocessing pickles a spawned process by reference, and its worker imports the script that the process came from.
What a cell defined is in no script, so here the process object is pickled by value, like the call itself.
"""

from __future__ import annotations

import pickle
from multiprocessing import forkserver, process, reduction, util
from typing import Any

from notebook_accel.launch.wire.pickling import dump_worker, load_worker


class _PickledByValue:
    """Stands for a process object in a pickle."""

    def __init__(self, process_object: process.BaseProcess) -> None:
        self._process = process_object

    def __reduce__(self) -> Any:
        return load_worker, (dump_worker(self._process),)


def install() -> None:
    """Makes `spawn` and `forkserver` work for what cells defined, quickly, and workers leave no folders behind."""
    dump = reduction.dump

    def dump_by_value(obj: Any, file: Any, protocol: Any = None) -> None:
        if isinstance(obj, process.BaseProcess):
            pickle.dump(_PickledByValue(obj), file, protocol)
        else:
            dump(obj, file, protocol)

    reduction.dump = dump_by_value

    original_init = process.BaseProcess.__init__

    def init_with_temp_dir(self: process.BaseProcess, *args: Any, **kwargs: Any) -> None:
        # A worker that shares tensors otherwise makes a folder of its own, which is left behind if it is terminated.
        # If its parent has one, it uses that, and the parent removes it at its exit.
        util.get_temp_dir()
        original_init(self, *args, **kwargs)

    process.BaseProcess.__init__ = init_with_temp_dir  # type: ignore[method-assign]

    # The default on Linux since Python 3.14. Otherwise each worker of each epoch would import torch.
    forkserver.set_forkserver_preload(["__main__", "torch"])
