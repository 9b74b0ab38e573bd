"""An extension of the Jupyter server that measures by how much its event loop is late: `GET /event-loop-probe`.

Time for which the loop's thread was ready but had no core is not counted, so other work of the machine shows less.
"""

from __future__ import annotations

import asyncio
from typing import Any

from jupyter_server.base.handlers import APIHandler
from tornado import web

_PAUSE = 0.005
_delays: list[float] = []


def _waited_for_core() -> float:
    with open("/proc/thread-self/schedstat") as file:
        return int(file.read().split()[1]) / 1e9


async def _measure() -> None:
    loop = asyncio.get_running_loop()
    while True:
        waited, due = _waited_for_core(), loop.time() + _PAUSE
        await asyncio.sleep(_PAUSE)
        _delays.append(max(0.0, loop.time() - due - (_waited_for_core() - waited)))


class _Handler(APIHandler):
    """The delays since the last request, in seconds."""

    _track_activity = False

    @web.authenticated
    async def get(self) -> None:
        found = list(_delays)
        _delays.clear()
        self.finish({"delays": found})


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "event_loop_probe"}]


def _load_jupyter_server_extension(server: Any) -> None:
    server.web_app.add_handlers(".*$", [(f"{server.web_app.settings['base_url']}event-loop-probe", _Handler)])
    server.io_loop.add_callback(_measure)
