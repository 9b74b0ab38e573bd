"""Tells the user, wherever they are, that a job has ended, failed, or stalled: `notify=`.

The process that runs the job sends, on threads of its own, so that nothing waits for an address that doesn't answer.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

from notebook_accel.config import addresses
from notebook_accel.events import Event, JobEnded, Stalled
from notebook_accel.launch.job import describe, location
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.show import console
from notebook_accel.launch.wire.plain_text import both_ends, visible

Target = str | Callable[["Notification"], object]
ENDED, FAILED, STALLED = "ended", "failed", "stalled"
PAUSES = (0.0, 1.0, 4.0)
"""Seconds before each try."""
TIMEOUT = 5.0
"""Seconds that an address has to answer."""
_LONGEST = 1000


@dataclass(frozen=True)
class Notification:
    """What is sent. A function of the user's is called with it."""

    event: str
    """`ended`, `failed`, or `stalled`."""
    id: str
    """The job."""
    title: str
    status: str
    text: str
    """All of this in words: the job in one line, and why it has failed or is stalled."""


class Notifications:
    """What is sent for one job.

    Args:
        job: The job; its events are followed.
        targets: To whom.
        environ: Has the variables that they name.
    """

    def __init__(self, job: Job, targets: Sequence[Target], environ: Mapping[str, str]) -> None:
        self._job = job
        self._targets = targets
        self._environ = environ
        self._threads: list[threading.Thread] = []
        self._is_stalled = False
        if targets:
            job.listen(self._on_event)

    def wait(self) -> None:
        """Waits until everything was sent, or was tried often enough."""
        for thread in self._threads:
            thread.join()

    def _on_event(self, rank: int | None, event: Event) -> None:
        if isinstance(event, JobEnded):
            is_failed = self._job.status is Status.FAILED or self._job.status.is_lost
            self._notify(FAILED if is_failed else ENDED, event.error.partition("\n")[0])
        elif isinstance(event, Stalled):
            begins = bool(event.places) and not self._is_stalled
            self._is_stalled = bool(event.places)
            if begins:
                self._notify(STALLED, location.explain(self._job))

    def _notify(self, event: str, why: str) -> None:
        job = self._job
        text = "\n".join(visible(line) for line in (describe.headline(job), why) if line)
        found = Notification(event, job.id, job.title, job.status.value, both_ends(text, _LONGEST))
        for target in self._targets:
            try:
                # Not a daemon: a script's process ends once its last notification was sent.
                thread = threading.Thread(target=partial(self._send, target, found), name=f"notify {event}")
                thread.start()
            except RuntimeError as error:  # the system allows no further thread
                console.current.notice(f"{_named(target)} could not be notified: {error}")
            else:
                self._threads.append(thread)

    def _send(self, target: Target, found: Notification) -> None:
        problem = ""
        for pause in PAUSES:
            time.sleep(pause)
            try:
                if callable(target):
                    target(found)
                else:
                    post(addresses.resolve(target, self._environ), found)
            except Exception as error:
                problem = _reason(error, is_users=callable(target))
                if callable(target):
                    break
            else:
                return
        what = f"{found.title} {_STATED[found.event]}"
        console.current.notice(f"{_named(target)} could not be notified that {what}: {problem}")


_STATED = {ENDED: "has ended", FAILED: "has failed", STALLED: "is stalled"}


def _reason(error: Exception, *, is_users: bool) -> str:
    """What has failed; other errors of an address have that in their text, which may be a secret."""
    name = type(error).__name__
    if is_users or isinstance(error, OSError):
        return f"{name}: {error}"
    return name


def _named(target: Target) -> str:
    return f"{getattr(target, '__name__', 'a function')}()" if callable(target) else target


def post(address: addresses.Address, found: Notification) -> None:
    """Sends a notification to an address.

    Raises:
        OSError: The address does not answer, or refuses it.
    """
    import urllib.request  # takes as long to import as the rest of the package, and most launches need no such thing

    if address.service == "ntfy":
        body, headers = found.text.encode(), {"Title": f"{found.event}: job {found.id}"}
    else:
        content = {"text": found.text} if address.service == "slack" else {"format": 1, **asdict(found)}
        body, headers = json.dumps(content).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(address.url, body, headers, method="POST")
    with urllib.request.urlopen(request, timeout=TIMEOUT):
        pass
