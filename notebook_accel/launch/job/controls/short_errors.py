"""Has a method of a job that waits for ranks fail without the frames of this package."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast


class _Waiting(Protocol):
    @property
    def title(self) -> str: ...

    def _shorten_traceback(self, error: BaseException) -> None: ...


_Method = TypeVar("_Method", bound=Callable[..., Any])


def short_errors(method: _Method) -> _Method:
    """Shortens a `TimeoutError`, and has an interrupt say that the job keeps running.

    The package's own errors are short in any case; these are Python's.
    """

    @functools.wraps(method)
    def wrapped(self: _Waiting, /, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except TimeoutError as error:
            self._shorten_traceback(error)
            raise
        except KeyboardInterrupt:
            interrupt = KeyboardInterrupt(
                f"job.{method.__name__}() was interrupted; {self.title} keeps running, and may still do what was "
                "asked: cancel() ends it"
            )
            self._shorten_traceback(interrupt)
            raise interrupt from None

    return cast(_Method, wrapped)
