"""The launch of a map: ranks that are each a world of their own, which get its items, and the value of the job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from notebook_accel.errors import PayloadError
from notebook_accel.events import Event, JobEnded
from notebook_accel.launch.driver.launch import Launch
from notebook_accel.launch.driver.map_output import Writer
from notebook_accel.launch.driver.map_results import MapResults
from notebook_accel.launch.driver.map_work import FailedItem, MapWork, enumerated
from notebook_accel.launch.engines.contract import Engine, RanksSpec
from notebook_accel.launch.engines.independent import IndependentRanks
from notebook_accel.launch.engines.ranks import Ranks
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.plan.plan import Plan
from notebook_accel.launch.plan.ranks_spec import ranks_spec
from notebook_accel.launch.show import console
from notebook_accel.launch.wire import constants
from notebook_accel.launch.wire.event_loop import EventLoop
from notebook_accel.launch.wire.payload import Payload
from notebook_accel.rank_spans import counted

_MOST_NAMED = 10


@dataclass(frozen=True, kw_only=True)
class MapOrder:
    """What to map, and how. Of a detached map, it is pickled."""

    items: Callable[[], Iterable[Any]]
    """Returns the items."""
    batch: int
    """The most items of a call; 0: one by itself."""
    retries: int
    """How often an item that fails is tried again."""
    checkpoint: Path | None
    """Where the values are saved."""
    write: Writer


class MapLaunch(Launch):
    """Runs a map as a job.

    Args:
        order: The map.
        engine: As for `Launch`, as are the following arguments.

    Raises:
        ConfigurationError: Another map saves to the same folder, or it is not a folder.
        CheckpointError: What is there can't be read, or may be of another user.
        PayloadError: The items can't be unpickled here.
    """

    def __init__(
        self,
        order: MapOrder,
        engine: Engine,
        planned: Plan,
        environ: Mapping[str, str],
        packed: Payload,
        *args: Any,
        **options: Any,
    ) -> None:
        try:
            items = order.items()
        except Exception as error:
            raise PayloadError(f"the items can't be unpickled in the process of the map: {error!r}") from error
        self._results = MapResults(order.checkpoint, order.write.path)
        self._write = order.write
        try:
            self._work = MapWork(
                enumerated(items, lambda error: self._work.fail(error)),
                total=_length(items),
                batch=order.batch,
                retries=order.retries,
                results=self._results,
                check=order.write.check,
            )
            super().__init__(engine, planned, environ, packed, *args, **options)
        except BaseException:
            self._results.close()
            raise
        self.job.listen(self._on_event)

    def collect(self) -> tuple[Any, Exception | None]:
        work, results = self._work, self._results
        if work.error is not None:
            return None, work.error
        failures = [work.failures[index] for index in sorted(work.failures)]
        if failures:
            console.current.notice(_describe(failures, work.seen))
        if results.stale:
            console.current.notice(
                f"{results.folder} had the values of {results.stale} other items, which were computed again"
            )
        try:
            written = self._write(work.values)
        except Exception as error:
            return None, error
        results.is_needed = written.lacks
        if written.notice:
            is_kept = written.lacks and results.folder is not None
            kept = f". All values are in {results.folder}: {self._how()} takes them from there" if is_kept else ""
            console.current.notice(f"{written.notice}{kept}")
        return (written.value, None) if self.results is None else self.results.keep(written.value)

    def close(self) -> None:
        self._results.close()
        super().close()

    def _on_event(self, rank: int | None, event: Event) -> None:
        """Closes the file of the values, however the job has ended, and says how to continue."""
        if not isinstance(event, JobEnded):
            return
        folder, count = self._results.folder, len(self._results)
        self._results.close()
        if event.status != Status.DONE and folder is not None and count:
            console.current.notice(f"{folder} has {counted(count, 'value')}: to continue, make {self._how()}")

    def _how(self) -> str:
        """The call that takes the values from the folder."""
        more = f"with checkpoint={str(self._results.folder)!r}" if self._results.is_own else "again"
        return f"the same call {more}"

    def _start(self, number: int) -> Ranks:
        return IndependentRanks(self._engine, self._alone, self._plan.size, EventLoop(), self._work)

    def _alone(self, rank: int) -> RanksSpec:
        """What to start for a rank that is a world of its own, on the device that it would have among all."""
        spec = ranks_spec(replace(self._plan, size=1, config=replace(self._plan.config, port=0)), self._environ)
        own = {**spec.environments[0], "LOCAL_RANK": str(rank)}
        return replace(spec, environments=[own], pace=constants.report_interval(self._plan.size))


def _length(items: Iterable[Any]) -> int | None:
    """How many items there are, if that is known."""
    try:
        return len(items) if isinstance(items, Sized) else None
    except TypeError:  # of a loader of an iterable data set
        return None


def _describe(failures: Sequence[FailedItem], count: int) -> str:
    named = ", ".join(str(each.index) for each in failures[:_MOST_NAMED])
    more = f", and {len(failures) - _MOST_NAMED} more" if len(failures) > _MOST_NAMED else ""
    return f"{len(failures)} of {count} items failed: {named}{more}. The first error: {failures[0].error[:300]}"
