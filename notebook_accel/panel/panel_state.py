"""Makes the state of a job that is sent to the browser's panel."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from notebook_accel import events
from notebook_accel.events import Phase
from notebook_accel.launch.job import describe, location, progress, resources
from notebook_accel.launch.job.headline import Headline, headline, rank_line
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.progress import Overview
from notebook_accel.launch.job.rank_state import RankState
from notebook_accel.launch.job.requests import RequestedStacks
from notebook_accel.launch.job.text import clock, date, percent, rate, shortened, size, value
from notebook_accel.launch.wire.constants import GRACE
from notebook_accel.launch.wire.plain_text import plain
from notebook_accel.panel.pacing import Pacer
from notebook_accel.panel.panel_charts import MOST_CHARTS, PanelCharts
from notebook_accel.panel.panel_controls import PanelControls
from notebook_accel.panel.panel_model import Bar, Head, Rank, State
from notebook_accel.rank_spans import named

REQUESTS = ("stack", "expanded", "control", "charts")
"""The commands that `StateMaker.request` handles."""
_MOST_NAMES = 300
_MOST_BARS = 8
_MOST_LINES = 50
"""Output lines of a rank that is not expanded; fewer if there are many ranks."""
_ALL_LINES = 800
_EXPANDED_LINES = 1000
"""The lines of all rows that the user has expanded."""
_TEXT_LIMIT = 300
_LONGEST_STACK, _ALL_STACKS = 4000, 40_000
"""The most characters of a rank's stack, and of all stacks together; longer ones are cut to their innermost frames."""
_IN_FULL = 8
"""The number of ranks that one update covers in full."""
_FACT_LIMIT = 600
_NAME_LIMIT = 24


class StateMaker:
    """Makes the state of a job repeatedly; with many ranks or metrics, each update renews only some of them.

    Args:
        job: The job.
        metric_pacer: Limits how often charts are drawn.
    """

    def __init__(self, job: Job, metric_pacer: Pacer | None = None) -> None:
        self._job = job
        self._ranks: dict[str, Rank] = {}
        self._next_rank = 0
        """The first rank of the next full update."""
        self._bars: dict[int, dict[int, tuple[events.Bar, Bar]]] = {}
        """By rank and bar: the bar's last state, and the state made from it for the panel."""
        self._stalled: events.Stalled | None = None
        self._stacks: dict[int, str] = {}
        """The stacks of a stalled job's ranks."""
        self._requested = RequestedStacks(job)
        self._controls = PanelControls(job)
        self._expanded: frozenset[int] = frozenset()
        """The ranks whose rows are expanded, which have all lines that the job stores."""
        self._progress = progress.CachedProgress()
        self._charts = PanelCharts(job, metric_pacer)

    def request(self, message: Mapping[str, Any]) -> None:
        """Does what a panel requests. Any thread may call it.

        Args:
            message: `{"cmd": "stack", "rank": 3}` requests the stack of a rank, `{"cmd": "expanded", "ranks": [0, 3]}`
                tells which ranks are expanded, `{"cmd": "charts", "metrics": ["loss"]}` which charts to draw, and
                `{"cmd": "control", "action": "pause"}` does something to the training.
        """
        if message["cmd"] == "charts":
            self._charts.choose([str(name) for name in message["metrics"]])
            return
        known = {state.rank for state in self._job.ranks}
        if message["cmd"] == "control":
            self._controls.request(message)
        elif message["cmd"] == "expanded":
            self._expanded = frozenset(known.intersection(message["ranks"]))
        elif message["rank"] in known:
            self._requested.request(message["rank"])

    @property
    def has_results_to_come(self) -> bool:
        """Whether something is being made that `take_results` will yield."""
        return self._controls.is_inspecting

    def take_results(self) -> Iterator[Any]:
        """Yields what the panel has requested to be shown below it, as soon as it is ready."""
        return self._controls.take_results()

    def whole(self) -> State:
        """The current state, with every rank and metric in full."""
        self._charts.update_all()
        return self._make(self._job.ranks)

    def make(self) -> State:
        """The current state: the progress of every rank, and in full those that are expanded and some more in turn."""
        ranks = self._job.ranks
        turn = [ranks[(self._next_rank + index) % len(ranks)] for index in range(min(_IN_FULL, len(ranks)))]
        self._next_rank = (self._next_rank + len(turn)) % len(ranks)
        turn += [state for state in ranks if state.rank in self._expanded and state not in turn][:_IN_FULL]
        return self._make(turn)

    def update_metrics(self) -> None:
        """Redraws charts, at a limited rate."""
        self._charts.update()

    def _make(self, turn: list[RankState]) -> State:
        found = progress.overview(self._job, self._progress)
        self._update_stacks()
        in_full = {str(state.rank): self._rank(state, found) for state in turn}
        ranks = {}
        spread = progress.is_spread(self._job)
        for state in self._job.ranks:
            name = str(state.rank)
            rank = in_full.get(name) or self._ranks.get(name)
            if rank is None or (rank["phase"], rank["detail"]) != (state.phase.value, state.doing):
                rank = self._rank(state, found)
            ranks[name] = self._with_position(rank, state, found, state.host if spread else "")
        self._ranks = ranks
        head, controls = _head(self._job, found), self._controls.state()
        return {"head": head, "controls": controls, "ranks": ranks, "metrics": self._charts.drawn}

    def _with_position(self, rank: Rank, state: RankState, found: Overview, host: str) -> Rank:
        """The rank with its position among the others; the same object if nothing changed, for fast comparison."""
        done = _thousandths(found.fractions.get(state.rank))
        if len(self._job.ranks) >= progress.COMPACT_FROM:
            done -= done % 10  # the grid shows whole percents, so a smaller change need not be drawn
        mark = found.mark(state)
        if (rank["done"], rank["mark"], rank["host"]) == (done, mark, host):
            return rank
        return {**rank, "done": done, "mark": mark, "host": host}

    def _rank(self, state: RankState, found: Overview) -> Rank:
        line, metrics = rank_line(state, waits=found.waits), self._charts.values.get(state.rank, {})
        return {
            "phase": state.phase.value,
            "host": "",
            "detail": state.doing,
            "done": -1,
            "text": shortened(line.text, _TEXT_LIMIT),
            "time_left": line.left,
            "mark": "",
            "error": shortened(line.error, _TEXT_LIMIT),
            "is_consequence": state.failed is not None and state.failed.from_peer,
            "memory": describe.memory(state),
            "usage": resources.brief(state) or _memory(state),
            "usage_facts": resources.facts(state),
            "warning": resources.warning(state),
            "values": {name: value(number) for name, number in islice(metrics.items(), MOST_CHARTS)},
            "bars": self._rank_bars(state, found),
            "lines": _lines(state, self._most_lines(state)),
            "stack": self._stacks.get(state.rank) or self._requested.text(state),
        }

    def _most_lines(self, state: RankState) -> int:
        if state.rank in self._expanded:
            return _EXPANDED_LINES // len(self._expanded)
        return min(_MOST_LINES, _ALL_LINES // len(self._job.ranks))

    def _update_stacks(self) -> None:
        if self._job.stalled is not self._stalled:
            self._stalled = self._job.stalled
            most = min(_LONGEST_STACK, _ALL_STACKS // len(self._job.ranks))
            found = location.stalled_stacks(self._job)
            self._stacks = {rank: _innermost(stack, most) for ranks, stack in found for rank in ranks}

    def _rank_bars(self, state: RankState, found: Overview) -> dict[str, Bar]:
        before = self._bars.get(state.rank, {})
        made = {}
        for bar in list(state.bars.values())[-_MOST_BARS:]:
            known = before.get(bar.bar)
            made[bar.bar] = known if known is not None and known[0] is bar else (bar, _bar(bar))
        self._bars[state.rank] = made
        drawn = {str(number): bar for number, (_, bar) in made.items()}
        if progress.rests(state, waits=found.waits):
            return {number: {**bar, "rate": "", "time_left": ""} for number, bar in drawn.items()}
        return drawn


def _head(job: Job, found: Overview) -> Head:
    live = not job.status.ended
    words = headline(job, found)
    return {
        "name": job.title,
        "devices": _joined(f"on {words.ranks}", job.hardware, words.attempt),
        "status": job.status.value,
        "state": words.status,
        "place": words.place,
        "elapsed": f"{words.seconds} elapsed",
        "time_left": clock(found.remaining) if live and found.remaining is not None else "",
        "done": _thousandths(found.done),
        "choices": "\n".join(describe.choices(job)),
        "changes": describe.changes(job),
        "summary": words.slowest,
        "about": _about(job),
        "tab": _in_short(job, found, words),
        "note": _note(job),
        "advice": _advice(job),
        "layout": "grid" if _is_grid(job) else "rows",
        "brief": progress.is_brief(job),
        "blocking": job.blocking,
        "stopping": job.stopping,
        "failed": [state.rank for state in progress.failed(job)],
        "metric_names": progress.metric_names(job)[:_MOST_NAMES],
        "metrics_note": progress.left_out(progress.metric_names(job), _MOST_NAMES),
        "kernel_lost_note": _kernel_lost_note(job),
    }


def _is_grid(job: Job) -> bool:
    return len(job.ranks) >= progress.COMPACT_FROM


def _kernel_lost_note(job: Job) -> str:
    """The notice that the browser shows once the kernel is gone, for jobs that outlive it."""
    if not job.elsewhere or job.status.ended:
        return ""
    return f"Kernel died or was restarted. The job is still running: notebook_accel.attach({job.id!r}) shows its state."


def _note(job: Job) -> str:
    """A notice for the user about the whole job."""
    left = [state.rank for state in job.ranks if not state.phase.ended]
    if job.stopping == 1 and left and not job.status.ended:
        return f"Waiting up to {GRACE:g} s for {named(left)} to exit on their own. Click again to kill them now."
    explained = location.explain(job) or " ".join(resources.warnings(job)[:1] if _is_grid(job) else ())
    if job.stalled and any(place.frames for place in job.stalled.places):
        explained += ". Expand a rank to see its Python stack."
    return explained[:1].upper() + explained[1:]


def _advice(job: Job) -> str:
    """What would make it faster, unless something else matters more."""
    if location.explain(job) or any(state.phase is Phase.FAILED for state in job.ranks):
        return ""
    return "".join(f"{sentence[:1].upper()}{sentence[1:]}." for sentence in job.advice[:1])


def _memory(state: RankState) -> str:
    return describe.memory(state) if state.device_used is None else f"GPU {size(state.device_used)}"


def _bar(bar: events.Bar) -> Bar:
    shown = progress.Progress([bar])
    return {
        "depth": bar.depth,
        "description": shortened(bar.description, _TEXT_LIMIT),
        "done": _thousandths(shown.fraction),
        "amount": progress.amount(bar),
        "rate": rate(bar.rate, bar.unit) if bar.rate else "",
        "time_left": "" if shown.remaining is None else clock(shown.remaining),
        "postfix": shortened(bar.postfix, _TEXT_LIMIT),
        "closed": bar.closed,
    }


def _lines(state: RankState, most: int) -> dict[str, str]:
    """The last lines by their number, so that a new line does not change all of them."""
    lines, written = list(state.lines), state.written
    shown = list(enumerate(lines, written - len(lines)))[-most:]
    return {str(number): shortened(plain(line.text), _TEXT_LIMIT) for number, line in shown}


def _innermost(stack: str, most: int) -> str:
    """The innermost frames of a stack that fit into a number of characters, innermost last."""
    if len(stack) <= most:
        return stack
    cut = stack[-most:]
    return "…\n" + (cut.partition("\n")[2] or cut)


def _thousandths(fraction: float | None) -> int:
    return -1 if fraction is None else round(1000 * min(1.0, max(0.0, fraction)))


def _about(job: Job) -> dict[str, str]:
    """What is known of the run, by name; without what is not known."""
    launched, used = job.launched, job.energy
    found = {
        "Call": launched.call or job.name,
        "Began": date(job.started, seconds=True),
        "Job": job.id,
        "Seed": "" if job.seed is None else str(job.seed),
        "Versions": launched.versions,
        "Devices": job.hardware,
        "Energy": "" if used is None else str(used),
    }
    return {name: shortened(text, _FACT_LIMIT) for name, text in found.items() if text}


def _in_short(job: Job, found: Overview, words: Headline) -> str:
    """`57% · loss 0.21`, for the title of the browser's tab."""
    parts = [] if found.done is None else [percent(found.done)]
    name = progress.main_metric(progress.metric_names(job))
    values = [state.metrics[name] for state in job.ranks if name is not None and name in state.metrics]
    if values:
        mean = sum(values) / len(values)
        parts.append(f"{shortened(str(name), _NAME_LIMIT)} {value(mean) if math.isfinite(mean) else mean}")
    if words.status != "running" and not job.status.ended:
        parts.insert(0, words.status)
    return _joined(*parts) or words.status


def _joined(*parts: str) -> str:
    return " · ".join(part for part in parts if part)
