"""Every error that this package raises.

    NotebookAccelError
    ├── UnsupportedNameError (ImportError) a name of Accelerate that this package does not have
    ├── ConfigurationError (ValueError)    an argument or a setting can't work
    ├── UnknownArgumentError (TypeError)   a function has no argument of this name
    ├── HardwareError (RuntimeError)       a requested device is not available
    ├── PayloadError (TypeError)           an object can't be sent to a rank or back
    ├── LaunchError (RuntimeError)         the ranks could not be started
    ├── StreamError (ConnectionError)      a message does not follow the protocol
    ├── JobCancelledError (RuntimeError)   the result was requested of a job that was cancelled
    ├── JobLostError (RuntimeError)        the result of a job is not available here
    ├── JobEndedError (RuntimeError)       something was requested of a job's ranks after the job had ended
    ├── CheckpointError (RuntimeError)     a checkpoint could not be written, or does not fit this run
    ├── PreemptedError (RuntimeError)      training was ended from outside, with a checkpoint to continue from
    ├── DistributedOperationException (RuntimeError)  ranks called a collective with different tensors
    └── RankError (RuntimeError)           a rank failed; its exception is the `__cause__`
        └── RankTimeoutError (TimeoutError)  the ranks did not finish in time

An interrupted launch ends in Python's own `KeyboardInterrupt`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


class NotebookAccelError(Exception):
    """Base of every error of this package."""


class UnsupportedNameError(NotebookAccelError, ImportError):
    """A name of Accelerate that this package does not have; the message says why, and what to use instead."""


class ConfigurationError(NotebookAccelError, ValueError):
    """An argument or a setting can't work; the message says which, why, and what to write instead."""


class UnknownArgumentError(NotebookAccelError, TypeError):
    """A function has no argument of this name; the message says what to write instead.

    It is a `TypeError`, as in Python: code that runs with several versions of a library may catch it.
    """


class HardwareError(NotebookAccelError, RuntimeError):
    """A requested device is not available."""


class PayloadError(NotebookAccelError, TypeError):
    """An object can't be sent to a rank or back; the message names it."""


class LaunchError(NotebookAccelError, RuntimeError):
    """The ranks could not be started."""

    def __init__(self, message: str, *, engine_lost: bool = False) -> None:
        super().__init__(message)
        self.engine_lost = engine_lost
        """The process that starts the ranks has ended. The next launch starts a new one."""


class StreamError(NotebookAccelError, ConnectionError):
    """A message does not follow the protocol between the kernel, the fork server, and the ranks."""


class JobCancelledError(NotebookAccelError, RuntimeError):
    """The result was requested of a job that had been cancelled."""


class JobLostError(NotebookAccelError, RuntimeError):
    """The result was requested of a job that ended with its process, or whose result only that process has."""


class JobEndedError(NotebookAccelError, RuntimeError):
    """Something was requested of a job's ranks after the job had ended."""


class CheckpointError(NotebookAccelError, RuntimeError):
    """A checkpoint could not be written, or does not fit the objects to load it into."""


class PreemptedError(NotebookAccelError, RuntimeError):
    """A loop over `Accelerator.epochs` was ended from outside; the same launch continues from its last checkpoint."""


class DistributedOperationException(NotebookAccelError, RuntimeError):  # Accelerate's name
    """Ranks called a collective with tensors of different shapes, types, or structure, or different collectives."""


@dataclass(frozen=True)
class RankFailure:
    """One way in which ranks failed."""

    ranks: tuple[int, ...]
    """The ranks that failed in this way."""
    summary: str
    """One line: `ValueError: no such file`, `killed by SIGSEGV`."""
    detail: str = ""
    """The traceback with the user's source, or, if the rank died, what is known about its death."""
    exception: BaseException | None = None
    """The rank's exception, if it could be pickled."""
    hosts: tuple[str, ...] = ()
    """The machines of these ranks, if the launch used several machines."""


class RankError(NotebookAccelError, RuntimeError):
    """One or more ranks failed.

    Attributes:
        failures: One entry for each distinct failure, the cause first; ranks that failed in the same way share one.
        rank: The rank that failed first.

    The original exception is the `__cause__` if it could be pickled, otherwise a stand-in with its text.
    """

    def __init__(self, message: str, failures: Sequence[RankFailure] = ()) -> None:
        super().__init__(message)
        self.failures = tuple(failures)

    @property
    def rank(self) -> int | None:
        return self.failures[0].ranks[0] if self.failures and self.failures[0].ranks else None


class RankTimeoutError(RankError, TimeoutError):
    """The ranks did not finish within `timeout`; the message shows where each one was."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: suggests a known name; empty if none is similar."""
    close = closest(word, known)
    return f"; did you mean {close}?" if close else ""


def closest(word: str, known: Iterable[str], similarity: float = 0.6) -> str:
    """The known name that is most similar to a word; empty if none reaches the similarity, from 0 to 1."""
    from difflib import get_close_matches  # only error messages need it

    return next(iter(get_close_matches(word, list(known), 1, similarity)), "")
