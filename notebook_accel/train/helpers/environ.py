"""Reads and sets environment variables, as scripts for Accelerate do."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from notebook_accel.config.kinds import WORDS, truth
from notebook_accel.errors import ConfigurationError


def str_to_bool(value: str, to_bool: bool = False) -> int | bool:
    """Returns 1 for `yes`, `true`, `on` and the like, 0 for their opposites, in upper or lower case.

    Args:
        value: The text.
        to_bool: Whether to return `True` and `False` instead.

    Raises:
        ConfigurationError: The text is neither.
    """
    found = truth(value)
    if found is None:
        raise ConfigurationError(f"{value!r} is neither true nor false: use one of {', '.join(WORDS)}")
    return found if to_bool else int(found)


def parse_flag_from_env(key: str, default: bool = False) -> bool:
    """Whether an environment variable says yes; the default if it is not set.

    Raises:
        ConfigurationError: It says neither yes nor no.
    """
    return bool(str_to_bool(os.environ.get(key, str(default))))


def parse_choice_from_env(key: str, default: str = "no") -> str:
    """The text of an environment variable; the default if it is not set."""
    return os.environ.get(key, str(default))


def get_int_from_env(env_keys: Iterable[str], default: int) -> int:
    """The first of several environment variables that holds a number of at least 0; the default if none does.

    Raises:
        ValueError: One holds something other than a number.
    """
    found = (int(os.environ.get(key, -1)) for key in env_keys)
    return next((number for number in found if number >= 0), default)


def are_libraries_initialized(*library_names: str) -> list[str]:
    """Returns those of these modules that this process has imported."""
    return [name for name in library_names if name in sys.modules]


@contextmanager
def patch_environment(**kwargs: object) -> Iterator[None]:
    """Sets environment variables within the block.

        with patch_environment(omp_num_threads=1): ...

    Args:
        kwargs: The values, by the variables' names in any case; they are set in upper case.
    """
    names = [name.upper() for name in kwargs]
    before = {name: os.environ[name] for name in names if name in os.environ}
    os.environ.update({name.upper(): str(value) for name, value in kwargs.items()})
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update(before)


@contextmanager
def clear_environment() -> Iterator[None]:
    """Removes all environment variables within the block."""
    before = dict(os.environ)
    os.environ.clear()
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
