"""The error of a failed job: the cause first, with the user's frames and cell sources, without this package's."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from notebook_accel.errors import PreemptedError, RankError, RankFailure, RankTimeoutError
from notebook_accel.events import Exited, Failed, Phase, Raised, ThreadStack
from notebook_accel.launch.job import resources
from notebook_accel.launch.job.rank_state import LOST_CONNECTION, RankState
from notebook_accel.launch.job.text import size
from notebook_accel.launch.wire import stack_frames
from notebook_accel.launch.wire.payload import unpack_value
from notebook_accel.launch.wire.plain_text import both_ends
from notebook_accel.rank_spans import spans

OUT_OF_MEMORY = "the system ran out of memory and ended it"
"""How a rank ended that the system has killed for lack of memory."""
_DEATH_REPORT_DELAY = 0.1
"""Seconds. When a rank is killed, others may raise over their lost connections before its parent reports its death."""
_MAX_HOSTS = 4
_MAX_SUMMARY = 2000
"""Characters of the line that summarizes how a rank failed; the full text follows below it."""
_MAX_TEXT = 8000
"""Characters of the text of one exception that the error shows; its `failures` have all."""
_LINKS = {
    "cause": "The above exception was the direct cause of the following exception:",
    "context": "During handling of the above exception, another exception occurred:",
}


def error(states: Sequence[RankState], *, oom_killed: bool, world_size: int | None = None) -> RankError:
    """The error for ranks of which at least one failed.

    Args:
        states: All of them.
        oom_killed: Whether the system killed a process for lack of memory while they ran.
        world_size: The number of ranks on all nodes; by default those given, if they begin with rank 0.
    """
    found = failed(states)
    spread = len({state.host for state in states if state.host}) > 1
    described = [(state, _describe(state, oom_killed, is_cause=state is found[0])) for state in found]
    failures = _merge_alike(
        [
            (state, replace(each, hosts=(state.host,)) if spread and state.host and not state.is_lost else each)
            for state, each in described
        ]
    )
    first = failures[0]
    total = _size_of(states, world_size)
    text = [_sentence(first, total)]
    if first.detail:
        text += ["", _shown(found[0], first.detail)]
    for other in failures[1:]:
        text += ["", _capital(_sentence(other, total))]
    stopped = [state.rank for state in states if state not in found and state.returned is None]
    if stopped:
        text += ["", f"{_capital(_who(stopped, 0))} {'were' if len(stopped) > 1 else 'was'} stopped."]
    raised = RankError("\n".join(text), failures)
    raised.__cause__ = first.exception
    return raised


def failed(states: Sequence[RankState]) -> list[RankState]:
    """The ranks that have failed by themselves, the cause first."""
    return sorted(filter(_has_failed, states), key=_order)


def _shown(state: RankState, detail: str) -> str:
    """The detail of the first failure, with very long texts of exceptions cut."""
    chain = () if state.failed is None else state.failed.chain
    shown = detail
    for text in {raised.text for raised in chain if len(raised.text) > _MAX_TEXT}:
        shown = shown.replace(text, both_ends(text, _MAX_TEXT))
    if shown == detail:
        return detail
    return f"{shown}\n\nThe whole text is in the error's failures[0].detail."


def repeatable(states: Sequence[RankState]) -> tuple[int, str, str] | None:
    """What identifies the exception that ended a training run that can be resumed: its step, type and line.

    An exception that is the same in the next attempt would be so in each. `None` if there is no such exception: if a
    rank was killed, the next attempt may well get further.
    """
    found = [state.failed for state in states if state.failed is not None and not state.failed.from_peer]
    first = min(found, key=lambda failed: failed.at, default=None)
    if first is None or first.step is None:
        return None
    raised = first.chain[-1]
    frame = raised.frames[-1] if raised.frames else None
    return first.step, raised.type_name, "" if frame is None else f"{frame.filename}:{frame.lineno}"


def is_preempted(states: Sequence[RankState]) -> bool:
    """Whether a training run was ended from outside, so that it is not to begin again."""
    return any(state.failed and state.failed.chain[-1].type_name == PreemptedError.__name__ for state in states)


def leaving(states: Sequence[RankState]) -> str:
    """The machines that shut down, as the reason for another attempt; empty if there are none."""
    hosts = list(dict.fromkeys(state.host for state in states if state.node_leaving and state.host))
    return f"{', '.join(hosts)} {'are' if len(hosts) > 1 else 'is'} shutting down" if hosts else ""


def timeout(
    states: Sequence[RankState],
    stacks_by_rank: Mapping[int, Sequence[ThreadStack]],
    seconds: float,
    *,
    world_size: int | None = None,
) -> RankTimeoutError:
    """The error for ranks that did not finish in time, with the stacks of those that reported them."""
    # A rank whose function returned may be late too: its process has not ended.
    late = [state for state in states if not state.returned] or list(states)
    ranks = tuple(state.rank for state in late)
    text = [f"{_who(ranks, _size_of(states, world_size))} did not finish within {seconds:g} s."]
    places: dict[str, list[int]] = {}
    for state in late:
        places.setdefault(_where(state, stacks_by_rank.get(states.index(state), ())), []).append(state.rank)
    for place, there in places.items():
        text += ["", f"{_capital(_who(there, 0))} {'were' if len(there) > 1 else 'was'} here:", place]
    return RankTimeoutError("\n".join(text), [RankFailure(ranks, "did not finish in time")])


def _where(state: RankState, threads: Sequence[ThreadStack]) -> str:
    if state.returned:
        return "  (the function has returned, but a thread that it started, or an exit handler, is still running)"
    return _format_main(threads)


def lost_value(state: RankState | None, problem: BaseException) -> RankError:
    """The error for a value of a rank, or of the whole job, that cannot be unpickled in this process."""
    why = f"{type(problem).__name__}: {problem}".rstrip(".")
    what = "a value" if state is None else f"rank {state.rank} returned a value that"
    text = (
        f"{what} can't be unpickled in the notebook: {why}. "
        "Return numbers, tensors, or a state_dict instead, and in place of a prepared model, "
        "accelerator.unwrap_model(model)."
    )
    raised = RankError(text, [] if state is None else [RankFailure((state.rank,), text)])
    raised.__cause__ = problem
    return raised


def format_stack(dump: str) -> str:
    """The stack of the thread that runs the user's function, from a dump that faulthandler wrote."""
    return _format_main(stack_frames.parse_dump(dump))


def _format_main(threads: Sequence[ThreadStack]) -> str:
    thread = next((thread for thread in threads if thread.main), threads[-1] if threads else None)
    shown = stack_frames.format_frames(thread.frames) if thread is not None else ""
    return shown or "  (not in the user's code)"


def _has_failed(state: RankState) -> bool:
    if state.is_lost:
        return True  # even if it was also sent a signal to end
    # A rank that was stopped on purpose has not failed by that.
    if state.failed is not None:
        return state.phase is not Phase.STOPPED
    return state.exited is not None and state.returned is None and not state.stopped


def _order(state: RankState) -> tuple[int, float, int]:
    """Sorts the cause first: lost nodes, then failures by time, then failures that another rank's end has caused."""
    if state.failed is not None:
        return 2 if state.failed.from_peer else 1, state.failed.at, state.rank
    assert state.exited is not None
    return 0 if state.exited.lost else 1, state.exited.at - _DEATH_REPORT_DELAY, state.rank


def _describe(state: RankState, oom_killed: bool, *, is_cause: bool) -> RankFailure:
    if state.failed is not None:
        return _raised(state, state.failed, is_cause=is_cause)
    assert state.exited is not None
    return _died(state, state.exited, oom_killed)


def _raised(state: RankState, failed: Failed, *, is_cause: bool) -> RankFailure:
    last = failed.chain[-1]
    text = both_ends(last.headline.removesuffix(":") if "\n" in last.text else last.headline, _MAX_SUMMARY)
    if failed.exit_code is not None:
        summary = f"exited with status {failed.exit_code} (sys.exit)"
    elif failed.stage == "loading":
        summary = f"could not unpickle the function or its arguments: {text}"
    elif failed.stage == "returning":
        return RankFailure((state.rank,), last.text, exception=_unpickle(failed))
    elif failed.from_peer and not is_cause:
        summary = LOST_CONNECTION
    else:
        summary = f"raised {text}"
        if failed.from_peer:
            summary += " (its connection was lost because another rank had ended)"
    chain = _format_chain(failed.chain)
    parts = [*([chain] if chain != text else []), *resources.memory_at_exception(state, failed.out_of_memory)]
    return RankFailure((state.rank,), summary, "\n\n".join(parts), _unpickle(failed))


def _died(state: RankState, exited: Exited, oom_killed: bool) -> RankFailure:
    if exited.lost:
        return RankFailure((state.rank,), f"was lost with machine {exited.lost}")
    memory = f"It held {size(state.resident)} at the end" if state.resident else "It had just started"
    if (exited.peak_resident or 0) > state.resident:  # neither is exact, see proc(5)
        memory += f", and {'' if state.resident else 'held '}{size(exited.peak_resident or 0)} at most"
    if exited.signal is None:
        summary = f"ended with status {exited.code} before the function returned (os._exit, or C code that exits)"
    else:
        summary = f"was killed by {_signal_name(exited.signal)}"
        if exited.signal == signal.SIGKILL:
            summary += f": {OUT_OF_MEMORY}" if oom_killed else ": by a user, or by the system because memory ran out"
        elif exited.signal == signal.SIGABRT:
            summary += ": C code has aborted; see its last lines of output"
    killed = exited.signal == signal.SIGKILL
    detail = "\n".join([f"{memory}.", *(resources.memory_at_kill(state, oom_killed=oom_killed) if killed else ())])
    if "Fatal Python error" in exited.crash:
        stack = exited.crash[exited.crash.index("Fatal Python error") :]
        detail = f"It was here:\n{format_stack(stack)}\n{detail}"
    return RankFailure((state.rank,), summary, detail)


def _merge_alike(found: Iterable[tuple[RankState, RankFailure]]) -> list[RankFailure]:
    """Merges the failures that differ only in the rank."""
    joined: dict[object, RankFailure] = {}
    for state, failure in found:
        # The details of a failure may have memory sizes, and those of a lost connection a port, which differ. So may
        # the depth of an endless recursion.
        counts = state.failed is not None and failure.summary != LOST_CONNECTION
        chain = [
            replace(raised, frames=[frame for frame, _ in groupby(raised.frames)])
            for raised in (state.failed.chain if state.failed is not None and counts else ())
        ]
        key = (failure.summary, _format_chain(chain))
        if key in joined:
            first = joined[key]
            hosts = tuple(dict.fromkeys((*first.hosts, *failure.hosts)))
            failure = replace(first, ranks=(*first.ranks, *failure.ranks), hosts=hosts)
        joined[key] = failure
    return [replace(failure, ranks=tuple(sorted(failure.ranks))) for failure in joined.values()]


def _unpickle(failed: Failed) -> BaseException:
    """The exception itself, or a stand-in with its text."""
    if failed.exception:
        try:
            raised = unpack_value(failed.exception)
        except Exception:
            raised = None
        if isinstance(raised, BaseException):
            return raised
    return RuntimeError(failed.chain[-1].text)


def _format_chain(chain: Sequence[Raised]) -> str:
    parts = []
    for raised in chain:
        stack = stack_frames.format_frames(raised.frames)
        parts.append(f"{stack}\n{raised.text}" if stack else raised.text)
        if raised.link:
            parts.append(_LINKS[raised.link])
    return "\n\n".join(parts)


def _size_of(states: Sequence[RankState], world_size: int | None) -> int:
    """The number of all ranks; 0 if not known."""
    if world_size is not None:
        return world_size
    return len(states) if states[0].rank == 0 else 0


def _sentence(failure: RankFailure, total: int) -> str:
    summary = failure.summary
    if len(failure.ranks) > 1 and summary.startswith("was "):
        summary = "were " + summary.removeprefix("was ")
    return f"{_who(failure.ranks, total)}{_on(failure.hosts)} {summary}"


def _on(hosts: Sequence[str]) -> str:
    """` (on node-b)`; empty if all ranks are on one node."""
    if not hosts:
        return ""
    return f" (on {', '.join(hosts[:_MAX_HOSTS])}{' and others' if len(hosts) > _MAX_HOSTS else ''})"


def _who(ranks: Sequence[int], total: int) -> str:
    """`rank 1 of 4`, `ranks 0-1 of 4`, `all 4 ranks`."""
    if total > 1 and len(ranks) == total:
        return f"all {total} ranks" if total > 2 else "both ranks"
    name = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {spans(ranks)}"
    return f"{name} of {total}" if total > 1 else name


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
