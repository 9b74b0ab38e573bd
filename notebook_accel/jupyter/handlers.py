"""The addresses of the extension, behind Jupyter's authentication and its check of XSRF tokens.

    GET    /notebook-accel/jobs          the user's last jobs: a `JobListing`
    GET    /notebook-accel/jobs?brief=1  the same, with the progress and metrics only of those that run
    POST   /notebook-accel/jobs/ID/stop  asks a job to stop
    PATCH  /notebook-accel/jobs/ID       changes the name, the notes, or the pin that the user has given a job
    POST   /notebook-accel/jobs/ID/panel what is new in a panel of a job, which may have requests: a `ServedUpdate`
    POST   /notebook-accel/pages/SESSION announces a page that draws jobs, by its connection to a kernel
    GET    /notebook-accel/outputs?notebook=PATH  where jobs were drawn in a notebook: a list of `NotedOutput`
    DELETE /notebook-accel/jobs/ID       removes a job that has ended
    GET    /notebook-accel/comparison?job=ID&job=ID&metric=NAME  a metric of several jobs: a `Comparison`
    GET    /notebook-accel/devices       the devices of this machine: a `DeviceListing`
    GET    /notebook-accel/running       whether a job runs, as JSON

A process of its own answers them; see `reader_process.py`. The last one needs no such process, since every page asks it
again and again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado import web

from notebook_accel.jupyter.reader_process import reader
from notebook_accel.launch.journal import pages, records

_ID = r"([0-9a-f]{12})"
_MOST_BYTES = 2**20
"""The most bytes of a panel's requests."""


class RelayHandler(APIHandler):
    """Answers requests to one address with what the reader answers."""

    auth_resource = "notebook_accel"

    def initialize(self, calls: Mapping[str, _Call]) -> None:
        self._call = calls.get(str(self.request.method))
        # A page that is open asks again and again, which must not keep an idle server from being stopped.
        self._track_activity = self._call is not None and self._call.is_of_user

    @web.authenticated
    @authorized
    async def get(self, *path: str) -> None:
        await self._relay(*path)

    @web.authenticated
    @authorized
    async def post(self, *path: str) -> None:
        await self._relay(*path)

    @web.authenticated
    @authorized
    async def patch(self, *path: str) -> None:
        await self._relay(*path)

    @web.authenticated
    @authorized
    async def delete(self, *path: str) -> None:
        await self._relay(*path)

    async def _relay(self, *path: str) -> None:
        if self._call is None:
            raise web.HTTPError(405)
        status, body = await reader().ask(self._call.name, **self._call.arguments(self, *path))
        if status >= 400:
            raise web.HTTPError(status, body.decode())
        if body == b"null":
            self.set_status(204)
            self.finish()
        else:
            self.finish(body)


class _Call(NamedTuple):
    """What a request to an address asks of the reader."""

    name: str
    arguments: Callable[..., dict[str, object]]
    """Of the handler, and of what the address names."""
    is_of_user: bool = False
    """Whether only a user sends it, and no page by itself."""


def _job(_: APIHandler, job_id: str) -> dict[str, object]:
    return {"job_id": job_id}


def _marks(handler: APIHandler, job_id: str) -> dict[str, object]:
    given = handler.get_json_body()
    if not isinstance(given, dict):
        raise web.HTTPError(400, "what changes about a job is an object")
    return {"job_id": job_id, "given": given}


def _panel(handler: APIHandler, job_id: str) -> dict[str, object]:
    if len(handler.request.body) > _MOST_BYTES:
        raise web.HTTPError(413, "the requests of a panel are too long")
    match handler.get_json_body():
        case {"panel": str(panel), "seq": int(seq), "messages": [*messages]}:
            return {"job_id": job_id, "panel": panel, "seq": seq, "messages": messages}
    raise web.HTTPError(400, "a panel sends its name, the number of its last update, and its messages")


def _comparison(handler: APIHandler) -> dict[str, object]:
    jobs, metric = handler.get_query_arguments("job"), handler.get_query_argument("metric", "", strip=False)
    if not jobs or not metric:
        raise web.HTTPError(400, "a comparison needs at least one job and a metric")
    return {"jobs": jobs, "metric": metric}


class RunningHandler(APIHandler):
    """Whether a job runs."""

    auth_resource = "notebook_accel"
    _track_activity = False

    @web.authenticated
    @authorized
    async def get(self) -> None:
        self.finish(json.dumps(await asyncio.get_running_loop().run_in_executor(None, _any_runs)))


def _any_runs() -> bool:
    return any(record.is_running() for record in records.unended_records())


_ADDRESSES: dict[tuple[str, ...], dict[str, _Call]] = {
    ("jobs",): {"GET": _Call("jobs", lambda of: {"brief": of.get_query_argument("brief", "0") == "1"})},
    ("jobs", _ID): {"PATCH": _Call("mark", _marks, True), "DELETE": _Call("delete", _job, True)},
    ("jobs", _ID, "stop"): {"POST": _Call("stop", _job, True)},
    ("jobs", _ID, "panel"): {"POST": _Call("panel", _panel)},
    ("pages", f"({pages.SESSION})"): {"POST": _Call("announce", lambda _, session: {"session": session})},
    ("outputs",): {
        "GET": _Call("outputs", lambda of: {"notebook": of.get_query_argument("notebook", strip=False)}),
    },
    ("comparison",): {"GET": _Call("compare", _comparison)},
    ("devices",): {"GET": _Call("devices", lambda of: {"folder": str(of.settings.get("server_root_dir") or "~")})},
}
"""By the parts of an address: what each method asks of the reader."""


def addresses(base_url: str) -> list[tuple[Any, ...]]:
    """The addresses, each with its handler."""

    def below(*parts: str) -> str:
        return str(url_path_join(base_url, "notebook-accel", *parts))

    relayed = [(below(*parts), RelayHandler, {"calls": calls}) for parts, calls in _ADDRESSES.items()]
    return [*relayed, (below("running"), RunningHandler)]
