"""The arguments of a call, pickled without its function, so that they can be passed to another one in a later launch.

They are unpickled on the ranks alone. In the notebook that would replace its variables: a pickled function has the
values of the global variables that it uses, and sets them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from notebook_accel.launch.wire.pickling import CallPickler, load


@dataclass(frozen=True)
class WithArguments:
    """Calls a function with stored arguments."""

    function: Callable[..., Any]
    arguments: Sequence[bytes]

    @property
    def __name__(self) -> str:
        return self.function.__name__

    def __call__(self) -> Any:
        main = vars(sys.modules["__main__"])
        own = dict(main)
        (args, kwargs), definitions = load(self.arguments[0], self.arguments[1:])
        main.update({**definitions, **own})  # what came with the function is newer
        return self.function(*args, **kwargs)


def pack(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[bytes]:
    """Pickles arguments, and the definitions of the notebook that they need: the stream, then its buffers."""
    pickler = CallPickler()
    pickler.dump((tuple(args), dict(kwargs)))
    pickler.dump(dict(pickler.definitions))
    return [pickler.stream.getvalue(), *map(bytes, pickler.buffers)]
