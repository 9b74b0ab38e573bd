"""Lets a rank spawn workers, such as a DataLoader's, that need what a cell has defined.

multiprocessing pickles a spawned process by reference, and its worker imports the script that the process came from.
What a cell defined is in no script, so here the process travels by value, as the call itself did.
"""

from __future__ import annotations

import pickle
from multiprocessing import process, reduction, util
from typing import Any

from notebook_accel.launch.wire.pickling import dump_worker, load_worker


class _PickledByValue:
    """A process object on its way."""

    def __init__(self, process_object: process.BaseProcess) -> None:
        self._process = process_object

    def __reduce__(self) -> Any:
        return load_worker, (dump_worker(self._process),)


def install() -> None:
    """Makes `spawn` and `forkserver` of multiprocessing work in this process, and workers leave no folders behind."""
    dump = reduction.dump

    def dump_by_value(obj: Any, file: Any, protocol: Any = None) -> None:
        if isinstance(obj, process.BaseProcess):
            pickle.dump(_PickledByValue(obj), file, protocol)
        else:
            dump(obj, file, protocol)

    reduction.dump = dump_by_value

    original_init = process.BaseProcess.__init__

    def init_with_temp_dir(self: process.BaseProcess, *args: Any, **kwargs: Any) -> None:
        # A worker that shares tensors would else make a folder of its own, and a worker that is ended leaves it there.
        # It takes its parent's if there is one, which this process removes at its end.
        util.get_temp_dir()
        original_init(self, *args, **kwargs)

    process.BaseProcess.__init__ = init_with_temp_dir  # type: ignore[method-assign]
