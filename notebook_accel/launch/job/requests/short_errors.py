"""Hides the package's own frames from the errors of a job's methods that wait for ranks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from notebook_accel.launch.job.requests.job_handle import JobHandle

_Method = TypeVar("_Method", bound=Callable[..., Any])


def short_errors(method: _Method) -> _Method:
    """Shortens a `TimeoutError`, and has an interrupt say that the job keeps running.

    The package's own errors are short in any case; these are Python's.
    """

    @functools.wraps(method)
    def wrapped(self: JobHandle, /, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except TimeoutError as error:
            self.runner.shorten_traceback(error)
            raise
        except KeyboardInterrupt:
            interrupt = KeyboardInterrupt(
                f"job.{method.__name__}() was interrupted; {self.title} keeps running, and may still do what was "
                "asked: cancel() ends it"
            )
            self.runner.shorten_traceback(interrupt)
            raise interrupt from None

    return cast(_Method, wrapped)
