"""Tells the user, wherever they are, that a job has ended, failed, or stalled, or that a rule was met: `notify=`.

The process that runs the job sends, on threads of its own, so that nothing waits for an address that doesn't answer.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

from notebook_accel.config import addresses
from notebook_accel.events import Event, JobEnded, RuleChanged, Stalled
from notebook_accel.launch.job import describe, location
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.show import console
from notebook_accel.launch.wire.plain_text import both_ends, visible

Target = str | Callable[["Notification"], object]
ENDED, FAILED, STALLED, RULE = "ended", "failed", "stalled", "rule"
PAUSES = (0.0, 1.0, 4.0)
"""Seconds before each try."""
TIMEOUT = 5.0
"""Seconds that an address has to answer."""
RULE_INTERVAL = 60.0
"""Seconds between two notifications of one rule, at least."""
_LONGEST = 1000


@dataclass(frozen=True)
class Notification:
    """What is sent. A function of the user's is called with it."""

    event: str
    """`ended`, `failed`, `stalled`, or `rule`."""
    id: str
    """The job, or the sweep."""
    title: str
    status: str
    text: str
    """All of this in words: the job in one line, and why it has failed or is stalled, or which rule was met."""
    kind: str = "job"
    """`job` or `sweep`."""


class Notifications:
    """What is sent for one job. One that is a part of something, as a trial is of a sweep, doesn't tell of its end.

    Args:
        job: The job; its events are followed.
        targets: To whom.
        environ: Has the variables that they name.
    """

    def __init__(self, job: Job, targets: Sequence[Target], environ: Mapping[str, str]) -> None:
        self._job = job
        self._sender = Sender(targets, environ)
        self._is_stalled = False
        self._rules: dict[int, float] = {}
        """By the number of a rule: when it was last sent."""
        if targets:
            job.listen(self._on_event)

    def wait(self) -> None:
        """Waits until everything was sent, or was tried often enough."""
        self._sender.wait()

    def _on_event(self, rank: int | None, event: Event) -> None:
        if isinstance(event, JobEnded) and not self._job.launched.part_of:
            is_failed = self._job.status is Status.FAILED or self._job.status.is_lost
            self._notify(FAILED if is_failed else ENDED, event.error.partition("\n")[0])
        elif isinstance(event, Stalled):
            begins = bool(event.places) and not self._is_stalled
            self._is_stalled = bool(event.places)
            if begins:
                self._notify(STALLED, location.explain(self._job))
        elif isinstance(event, RuleChanged) and event.met and not event.removed:
            now = time.monotonic()
            if now >= self._rules.get(event.number, -math.inf) + RULE_INTERVAL:
                self._rules[event.number] = now
                self._notify(RULE, event.last)

    def _notify(self, event: str, why: str) -> None:
        job = self._job
        lines = (describe.headline(job), why)
        self._sender.send(Notification(event, job.id, job.title, job.status.value, in_words(lines)))


def in_words(lines: Sequence[str]) -> str:
    """The text of a notification."""
    return both_ends("\n".join(visible(line) for line in lines if line), _LONGEST)


class Sender:
    """Sends notifications.

    Args:
        targets: To whom.
        environ: Has the variables that they name.
    """

    def __init__(self, targets: Sequence[Target], environ: Mapping[str, str]) -> None:
        self._targets = targets
        self._environ = environ
        self._threads: list[threading.Thread] = []

    def wait(self) -> None:
        """Waits until everything was sent, or was tried often enough."""
        for thread in self._threads:
            thread.join()

    def send(self, found: Notification) -> None:
        """Begins to send a notification to each of them."""
        for target in self._targets:
            try:
                # Not a daemon: a script's process ends once its last notification was sent.
                thread = threading.Thread(target=partial(self._send, target, found), name=f"notify {found.event}")
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


_STATED = {ENDED: "has ended", FAILED: "has failed", STALLED: "is stalled", RULE: "has met a rule"}


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
        body, headers = found.text.encode(), {"Title": f"{found.event}: {found.kind} {found.id}"}
    else:
        content = {"text": found.text} if address.service == "slack" else {"format": 1, **asdict(found)}
        body, headers = json.dumps(content).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(address.url, body, headers, method="POST")
    with urllib.request.urlopen(request, timeout=TIMEOUT):
        pass
