"""`map_on_ranks`: calls a function with each item of an iterable, on all ranks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from notebook_accel.advice import explained
from notebook_accel.config import kinds
from notebook_accel.config.call_arguments import check_call, check_detach
from notebook_accel.config.resolve import resolve
from notebook_accel.errors import ConfigurationError, LaunchError, PayloadError
from notebook_accel.launch.driver import launcher, map_output
from notebook_accel.launch.driver.launcher import BACKGROUND, BLOCKING, DETACHED
from notebook_accel.launch.driver.map_launch import MapLaunch, MapOrder
from notebook_accel.launch.wire import map_call
from notebook_accel.launch.wire.map_call import MapCall


@explained()
def map_on_ranks(
    function: Callable[..., Any],
    items: Iterable[Any],
    *,
    setup: Callable[[], Any] | None = None,
    batch: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    output: str | os.PathLike[str] | None = None,
    retries: int = 2,
    num_processes: int | None = None,
    gpus: Sequence[int] | None = None,
    device: str | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    name: str | None = None,
    notes: str | None = None,
    notify: str | Callable[[Any], object] | Sequence[str | Callable[[Any], object]] | None = None,
    wait: str | None = None,
    block: bool | None = None,
    detach: bool = False,
) -> Any:
    """Calls `function(item)` for each item, on several ranks, and returns the values in the order of the items.

    Each rank gets further items as soon as it is ready for them, so that slow items don't hold up the others. Each rank
    works on its own, so the function can't use collective operations. A rank that dies is replaced, and its items are
    given out again.

    Args:
        function: What to call, such as a function of a cell. It is pickled as by `notebook_launcher`.
        items: Any iterable, such as a list, a generator, or a `datasets.Dataset`. It is read in this process, as far as
            the ranks need it.
        setup: Called once on each rank, before its first item. What it returns, such as a model, is the second
            argument of the function, unless it is `None`.
        batch: Calls the function with lists of at most this many items. It has to return a list with a value for each.
        checkpoint: A folder, to which each value is saved as it arrives. The same call, in this kernel or another,
            continues from there: an item whose value is there is left out, unless the item has changed.
        output: A file to write the values to, in the order of the items, rather than returning them: `.jsonl`,
            or `.parquet`, which needs pyarrow. The values are then not kept in memory.
        retries: How many more times to try an item for which the function raises an exception, or whose rank dies. An
            item of a batch is then tried by itself.
        num_processes: As for `notebook_launcher`, as are the following arguments.
        gpus: Which GPUs to use, one entry for each rank.
        device: `cpu`, `cuda`, or `mps`.
        env: Environment variables for the ranks.
        timeout: Seconds after which the ranks are ended.
        name: What to call the job.
        notes: A note for yourself.
        notify: Where to send a notification if the job ends, fails, or stalls.
        wait: With `free`, the ranks start once their GPUs are free.
        block: With `False`, returns a `Job` at once; its `result()` is what this function returns otherwise.
        detach: With `True`, also returns a `Job` at once, and the map continues even if the notebook's kernel ends;
            `attach` finds it from any other kernel. The items are pickled as a whole, and a generator is read first.

    Returns:
        A list, with a `FailedItem` (`index`, `error`, `attempts`) in place of each item that failed every time;
        its attribute `failures` lists these. With `output`, the path of the file.

    Raises:
        ConfigurationError: An argument can't work.
        HardwareError: There are fewer devices than requested.
        PayloadError: The function can't be pickled.
        CheckpointError: Values can't be read or written.
        LaunchError: The ranks could not be started.
        RankError: `setup` failed on a rank, or a rank died several times before its first item.
        KeyboardInterrupt: The notebook was interrupted.
    """
    check_call(function, (), None)
    if setup is not None:
        check_call(setup, (), None)
    size = 0 if batch is None else int(kinds.integer(1).check("batch", batch))
    retries = int(kinds.integer(0).check("retries", retries))
    if isinstance(items, (str, bytes)) or not isinstance(items, Iterable):
        raise ConfigurationError(f"items must be a list or another iterable of items, not {items!r:.80}")
    if instead := _NAMES.get(type(items).__name__):
        raise ConfigurationError(f"items is a {type(items).__name__}, which iterates over names: pass {instead}")
    check_detach(detach, block)
    write = map_output.writer(output, stored=detach)
    settings = resolve(
        {
            "num_processes": num_processes,
            "gpus": gpus,
            "device": device,
            "env": env,
            "timeout": timeout,
            "name": name,
            "notes": notes,
            "notify": notify,
            "wait": wait,
        }
    )
    if settings.cluster or settings.num_nodes > 1:
        raise ConfigurationError("map_on_ranks runs on this machine only: leave out cluster and num_nodes")
    if detach:
        launcher.check_reachable(settings)
    settings = replace(settings, checkpoint_dir="", max_restarts=0, min_processes=None, time_limit="")
    prepared = launcher.prepare(settings)
    if not prepared.engine.isolated or prepared.planned.threaded:
        raise LaunchError(
            f"map_on_ranks needs a process for each rank, which the {prepared.engine.name} engine doesn't start: use "
            "notebook_launcher"
        )
    order = MapOrder(
        items=_packed(items) if detach else lambda: items,
        batch=size,
        retries=retries,
        checkpoint=None if checkpoint is None else Path(os.fsdecode(checkpoint)),
        write=write,
    )
    call = MapCall(function, setup)
    prepared, packed = replace(prepared, make=partial(MapLaunch, order)).packing(call, (), {})
    mode = DETACHED if detach else BACKGROUND if block is False else BLOCKING
    return prepared.start(packed, call.__name__, mode, None)


_NAMES = {
    "DataFrame": "its rows, as in df.to_dict('records'), or a column, as in df['text']",
    "DatasetDict": "one of its data sets, as in data['train']",
}
"""Types of items that iterate over names of columns or of splits, which is hardly meant; and what to pass instead."""


def _packed(items: Iterable[Any]) -> Callable[[], Iterable[Any]]:
    """Pickles the items for another process."""
    try:
        return partial(map_call.load, map_call.dump(list(items) if isinstance(items, Iterator) else items))
    except Exception as error:
        raise PayloadError(
            f"with detach=True, the items are pickled as a whole, which failed: {type(error).__name__}: {error}"
        ) from error
