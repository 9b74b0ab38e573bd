"""A tqdm bar that only the first rank of each node shows."""

from __future__ import annotations

from typing import Any

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.ranks import environment


def tqdm(*args: Any, main_process_only: bool = True, **kwargs: Any) -> Any:
    """Makes a bar of `tqdm.auto`, which by default is disabled on all ranks but the first of each node.

    Args:
        args: As for tqdm: first what to iterate over.
        main_process_only: Whether to show it on the first rank of each node only.
        kwargs: As for tqdm.

    Raises:
        ConfigurationError: The first argument is a bool.
    """
    from tqdm.auto import tqdm as bar

    if args and isinstance(args[0], bool):
        raise ConfigurationError("the first argument is what to iterate over: pass main_process_only=... by its name")
    if main_process_only and environment.read().local_rank:
        kwargs["disable"] = True
    return bar(*args, **kwargs)
