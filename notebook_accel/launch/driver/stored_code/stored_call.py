"""Collects what is stored with a job that saves checkpoints, so that another kernel can launch it again."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from notebook_accel.config import LaunchConfig, remote_folders
from notebook_accel.launch.driver.stored_code import definition_sources
from notebook_accel.launch.job.text import size, title
from notebook_accel.launch.journal.saved_launch import MOST_BYTES, SavedLaunch
from notebook_accel.launch.show import front_end
from notebook_accel.launch.wire import payload, pickling
from notebook_accel.launch.wire.payload import Payload


def save(
    config: LaunchConfig,
    packed: Payload,
    function: Callable[..., Any],
    name: str,
    mode: str,
    arguments: Callable[[], Sequence[bytes]],
) -> SavedLaunch:
    """Copies a launch that saves checkpoints. A call that is too large to be stored is left out, with a notice.

    Args:
        config: The settings of the launch.
        packed: Its packed call.
        function: Its function.
        name: The name of the function, for messages.
        mode: How the launch is made.
        arguments: Pickles the arguments of the call, as `payload.pack_arguments`.
    """
    qualified = getattr(function, "__qualname__", "")
    total = sum(packed.layout)
    saved = SavedLaunch(
        config,
        checkpoint_dir=remote_folders.absolute(config.checkpoint_dir),
        name=name,
        mode=mode,
        function=qualified if pickling.find(qualified) is function else "",
        definitions=definition_sources.collect(packed.names),
        folder=os.getcwd(),
    )
    if packed.unpacked is not None:
        return saved  # it runs in this process, and is not pickled
    if total > MOST_BYTES:
        front_end.current.notice(
            f"{title(name)} uses {size(total)} of data, but at most {size(MOST_BYTES)} is stored with a job, so "
            "%accelerate resume can't launch it again after a restart of the kernel. To continue, run the same launch "
            "with the same folder. To avoid this, load large data inside the function."
        )
        return saved
    return replace(saved, parts=payload.parts_of(packed), arguments=arguments())
