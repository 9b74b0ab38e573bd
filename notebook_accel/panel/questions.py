"""The questions of charts that are enlarged and of logs that are open, until they are answered."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from notebook_accel.panel.panel_model import Answer


class Reply(NamedTuple):
    """An answer."""

    content: Answer
    numbers: bytes = b""
    """What follows it: columns of numbers, or text."""


class Answers(Protocol):
    """Answers one kind of question, of which `Any` is the type."""

    commands: tuple[str, ...]
    """Those of the messages that ask it."""

    def parse(self, message: Mapping[str, Any]) -> Any:
        """The question in a message of a panel."""

    def answer(self, question: Any, *, at_once: bool) -> Reply | None:
        """The answer; `None` if there is none yet.

        Args:
            question: The question.
            at_once: Whether to read all that it takes, rather than a part at each call.
        """

    def is_answering(self, question: Any) -> bool:
        """Whether the answer is being made, rather than what it is about awaited."""


class Questions:
    """The last question of each chart and log of one panel."""

    def __init__(self, *answers: Answers) -> None:
        self._answers = {command: each for each in answers for command in each.commands}
        self._waiting: dict[str, tuple[Answers, Any]] = {}
        """By who asks."""
        self._lock = threading.Lock()

    def take(self, message: Mapping[str, Any]) -> bool:
        """Takes a question, in place of an earlier one of the same asker; returns whether the message is one.

        Any thread may call it.
        """
        answers = self._answers.get(message["cmd"])
        if answers is not None:
            self._waiting[str(message["asker"])] = answers, answers.parse(message)
        return answers is not None

    @property
    def is_answering(self) -> bool:
        """Whether an answer is being made, so that `reply` soon returns it."""
        return any(answers.is_answering(question) for answers, question in list(self._waiting.values()))

    def reply(self, *, at_once: bool = False) -> Reply | None:
        """The next answer; `None` if there is none yet. See `Answers.answer`."""
        with self._lock:
            for asker, waiting in list(self._waiting.items()):
                answers, question = waiting
                reply = answers.answer(question, at_once=at_once)
                if reply is not None:
                    if self._waiting.get(asker) is waiting:
                        del self._waiting[asker]
                    return reply
            return None
