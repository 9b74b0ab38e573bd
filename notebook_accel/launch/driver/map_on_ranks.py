"""`map_on_ranks`: calls a function with each item of an iterable, on all ranks."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from notebook_accel.advice import explained
from notebook_accel.config import kinds
from notebook_accel.config.call_arguments import check_call
from notebook_accel.config.resolve import resolve
from notebook_accel.errors import ConfigurationError, LaunchError
from notebook_accel.events import Event, JobEnded
from notebook_accel.launch.driver import launcher, map_output
from notebook_accel.launch.driver.launch import Launch
from notebook_accel.launch.driver.map_output import Writer
from notebook_accel.launch.driver.map_results import MapResults
from notebook_accel.launch.driver.map_work import FailedItem, MapWork, enumerated
from notebook_accel.launch.engines.contract import RanksSpec
from notebook_accel.launch.engines.independent import IndependentEngine
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.job.rank_state import RankState
from notebook_accel.launch.journal.saved_launch import BACKGROUND, BLOCKING
from notebook_accel.launch.plan import environment
from notebook_accel.launch.plan.plan import Plan
from notebook_accel.launch.plan.rendezvous import open_rendezvous
from notebook_accel.launch.show import console
from notebook_accel.launch.wire import map_call
from notebook_accel.launch.wire.map_call import MapCall
from notebook_accel.rank_spans import counted

_MOST_NAMED = 10


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
    block: bool | None = None,
) -> Any:
    """Calls `function(item)` for each item, on several ranks, and returns the values in the order of the items.

    Each rank gets further items as soon as it is ready for them, so that slow items don't hold up the others. Each rank
    is a world of its own: the function can't use collective operations. A rank that dies is replaced, and its items are
    given out again.

    Args:
        function: What to call, such as a function of a cell. It is pickled as by `notebook_launcher`.
        items: Any iterable, such as a list, a generator, or a `datasets.Dataset`. It is read in this process, as far as
            the ranks need it.
        setup: Is called once on each rank, before its first item. What it returns, such as a model, is the second
            argument of the function, unless it is `None`.
        batch: Calls the function with lists of at most this many items. It has to return a list with a value for each.
        checkpoint: A folder, to which each value is saved as it arrives. The same call, in this kernel or another,
            continues from there: an item whose value is there is left out, unless the item has changed.
        output: A file to write the values to, in the order of the items, rather than to return them: `.jsonl`, or
            `.parquet`, which needs pyarrow. With this, memory holds no values.
        retries: How often an item is tried again for which the function raises an exception, or the rank dies. An item
            of a batch is then tried by itself.
        num_processes: As for `notebook_launcher`, as are the following arguments.
        gpus: Which GPUs to use, one entry for each rank.
        device: `cpu`, `cuda`, or `mps`.
        env: Environment variables for the ranks.
        timeout: Seconds after which the ranks are ended.
        name: What to call the job.
        notes: A note for yourself.
        notify: Whom to tell that the job has ended, failed, or stalled.
        block: With `False`, returns a `Job` at once; its `result()` is what this function returns otherwise.

    Returns:
        A list, with a `FailedItem` (`index`, `error`, `attempts`) in the place of each item that failed every time;
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
    write = map_output.writer(output)
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
        }
    )
    if settings.cluster or settings.num_nodes > 1:
        raise ConfigurationError("map_on_ranks runs on this machine only: leave out cluster and num_nodes")
    settings = replace(settings, checkpoint_dir="", max_restarts=0, min_processes=None, time_limit="")
    prepared = launcher.prepare(settings)
    if not prepared.engine.isolated or prepared.planned.threaded:
        raise LaunchError(
            f"map_on_ranks needs a process for each rank, which the {prepared.engine.name} engine doesn't start: use "
            "notebook_launcher"
        )
    call = MapCall(function, setup)
    prepared, packed = prepared.packing(call, (), {})
    with contextlib.ExitStack() as on_error:
        on_error.callback(packed.close)
        results = MapResults(None if checkpoint is None else Path(os.fsdecode(checkpoint)), write.folder)
        on_error.callback(results.close)
        work = MapWork(
            enumerated(items, lambda error: work.fail(error)),
            total=len(items) if isinstance(items, Sized) else None,
            batch=size,
            retries=retries,
            results=results,
            check=write.check,
        )
        alone = partial(_alone, replace(prepared.planned, size=1), prepared.environ)
        engine = IndependentEngine(prepared.engine, alone, work)
        launch = Launch(engine, prepared.planned, prepared.environ, packed, call.__name__, prepared.open_view)
        launch.collect = partial(_collect, work, write)
        launch.job.listen(partial(_on_end, work))
        on_error.pop_all()
    return launcher.run(launch, BACKGROUND if block is False else BLOCKING)


def _alone(plan: Plan, environ: Mapping[str, str], spec: RanksSpec, rank: int) -> RanksSpec:
    """What to start for a rank that is a world of its own, on the device that it would have among all."""
    rendezvous = open_rendezvous(replace(plan.config, port=0), 0)
    (made,) = environment.of_ranks(plan, rendezvous, environ)
    own = {**made, "LOCAL_RANK": str(rank), "NOTEBOOK_ACCEL_JOB": spec.environments[rank]["NOTEBOOK_ACCEL_JOB"]}
    return replace(spec, environments=[own], rendezvous=rendezvous, pace=spec.report_interval)


def _collect(work: MapWork, write: Writer, ranks: Sequence[RankState]) -> tuple[Any, Exception | None]:
    """The value of the job."""
    del ranks
    try:
        if work.error is not None:
            return None, work.error
        failures = [work.failures[index] for index in sorted(work.failures)]
        if failures:
            console.current.notice(_describe(failures, work.seen))
        if work.results.stale:
            console.current.notice(
                f"{work.results.folder} had the values of {work.results.stale} other items, which were computed again"
            )
        return write(_values(work), failures), None
    except Exception as error:
        return None, error


def _on_end(work: MapWork, rank: int | None, event: Event) -> None:
    """Closes the file of the values, however the job has ended, and says how to continue."""
    if not isinstance(event, JobEnded):
        return
    folder, count = work.results.folder, len(work.results)
    work.results.close()
    if event.status != Status.DONE and folder is not None and count:
        console.current.notice(f"{folder} has {counted(count, 'value')}: to continue, make the same call again")


def _values(work: MapWork) -> Iterator[Any]:
    for index in range(work.seen):
        blob = work.results.get(index)
        yield work.failures[index] if blob is None else map_call.load(blob)


def _describe(failures: Sequence[FailedItem], count: int) -> str:
    named = ", ".join(str(each.index) for each in failures[:_MOST_NAMED])
    more = f", and {len(failures) - _MOST_NAMED} more" if len(failures) > _MOST_NAMED else ""
    return f"{len(failures)} of {count} items failed: {named}{more}. The first error: {failures[0].error[:300]}"
