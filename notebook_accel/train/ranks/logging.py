"""Loggers that by default write a message once, on rank 0, however many ranks log it."""

from __future__ import annotations

import logging
import os
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.ranks import environment
from notebook_accel.train.ranks.state import PartialState

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter


class MultiProcessAdapter(_Adapter):
    """A logger whose methods take two more arguments.

    main_process_only (bool): Whether only rank 0 logs, which is the default. Otherwise each line begins with its rank.
    in_order (bool): Whether all ranks log, one after the other. All of them must call the method.
    """

    def __init__(self, logger: logging.Logger, extra: dict[str, Any] | None = None) -> None:
        super().__init__(logger, extra or {})
        self._warned: set[tuple[Any, ...]] = set()

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        main_process_only = kwargs.pop("main_process_only", True)
        in_order = kwargs.pop("in_order", False)
        if not self.isEnabledFor(level):
            return
        rank, size = _rank_and_size()
        kwargs.setdefault("stacklevel", 2)  # the caller of this method
        msg, kwargs = self.process(msg, kwargs)  # type: ignore[assignment]
        if size > 1 and (in_order or not main_process_only):
            msg = f"[RANK {rank}] {msg}"
        if in_order and size > 1:
            state = _state()
            for turn in range(size):
                if turn == rank:
                    self.logger.log(level, msg, *args, **kwargs)
                state.wait_for_everyone()
        elif rank == 0 or not main_process_only:
            self.logger.log(level, msg, *args, **kwargs)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs

    def warning_once(self, msg: object, *args: Any, **kwargs: Any) -> None:
        """Logs a warning, only the first time that it is called with this message and these arguments."""
        key = (str(msg), *map(str, args))
        if key not in self._warned:
            self._warned.add(key)
            kwargs.setdefault("stacklevel", 3)
            self.warning(msg, *args, **kwargs)


def get_logger(name: str, log_level: str | int | None = None) -> MultiProcessAdapter:
    """Returns a logger that logs on rank 0 only by default; it works before there is an Accelerator.

    Args:
        name: As for `logging.getLogger`; usually `__name__`.
        log_level: Such as `"INFO"`. `None`: the environment variable `ACCELERATE_LOG_LEVEL`, or Python's default.
    """
    logger = logging.getLogger(name)
    log_level = log_level or os.environ.get("ACCELERATE_LOG_LEVEL")
    if log_level is not None:
        logger.setLevel(log_level.upper() if isinstance(log_level, str) else log_level)
    return MultiProcessAdapter(logger)


def _rank_and_size() -> tuple[int, int]:
    """The rank and the world size, without choosing a device or joining a process group."""
    rank_environ = environment.read()
    return rank_environ.rank, rank_environ.world_size


def _state() -> PartialState:
    state = PartialState.settled()
    if state is None:
        raise ConfigurationError(
            "in_order=True makes the ranks wait for each other, but they have not joined yet: make the Accelerator "
            "(or a PartialState) first"
        )
    return state
