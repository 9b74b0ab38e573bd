"""The address of the devices: `GET /notebook-accel/devices`, a `DeviceListing`, behind Jupyter's authentication.

A page asks while its sidebar is visible. The devices are read on a thread of their own, so that neither Jupyter's event
loop nor the list of jobs waits for a driver. A while after the last request, the drivers' libraries are closed.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from tornado import web

if TYPE_CHECKING:
    from notebook_accel.jupyter.device_history import DeviceHistory

IDLE = 30.0
"""Seconds without a request after which the drivers' libraries are closed."""
_thread = ThreadPoolExecutor(1, thread_name_prefix="notebook-accel devices")
_closing: asyncio.TimerHandle | None = None


@cache
def _history(folder: str) -> DeviceHistory:
    from notebook_accel.jupyter.device_history import DeviceHistory  # takes a while, and a server may never need it

    return DeviceHistory(Path(folder))


class DevicesHandler(APIHandler):
    """The devices of this machine."""

    auth_resource = "notebook_accel"
    _track_activity = False
    """A page that is open asks again and again, which must not keep an idle server from being stopped."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        folder = str(self.settings.get("server_root_dir") or "~")
        loop = asyncio.get_running_loop()
        listing = await loop.run_in_executor(_thread, lambda: _history(_expanded(folder)).listing())
        _close_later(loop, _expanded(folder))
        self.finish(listing)


def _close_later(loop: asyncio.AbstractEventLoop, folder: str) -> None:
    global _closing  # one server has one event loop
    if _closing is not None:
        _closing.cancel()
    _closing = loop.call_later(IDLE, lambda: _thread.submit(_history(folder).close))


def _expanded(folder: str) -> str:
    return str(Path(folder).expanduser())
