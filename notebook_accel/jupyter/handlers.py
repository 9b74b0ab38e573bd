"""The addresses of the extension, behind Jupyter's authentication and its check of XSRF tokens.

    GET    /notebook-accel/jobs          the user's last jobs: a `JobListing`
    GET    /notebook-accel/jobs?brief=1  the same, with the progress and metrics only of those that run
    POST   /notebook-accel/jobs/ID/stop  asks a job to stop
    PATCH  /notebook-accel/jobs/ID       changes the name, the notes, or the pin that the user has given a job
    POST   /notebook-accel/jobs/ID/panel what is new in a panel of a job, which may have requests: a `PanelUpdate`
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
from typing import Any

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado import web

from notebook_accel.jupyter.reader_process import reader
from notebook_accel.launch.journal import pages, records

_ID = r"([0-9a-f]{12})"
_MOST_BYTES = 2**20
"""The most bytes of a panel's requests."""


class _Handler(APIHandler):
    """What the handlers below share."""

    auth_resource = "notebook_accel"

    async def _relay(self, call: str, **arguments: object) -> None:
        """Answers with what the reader answers."""
        status, body = await reader().ask(call, **arguments)
        if status >= 400:
            raise web.HTTPError(status, body.decode())
        if body == b"null":
            self.set_status(204)
            self.finish()
        else:
            self.finish(body)


class ListHandler(_Handler):
    """The user's jobs."""

    _track_activity = False
    """A page that is open asks again and again, which must not keep an idle server from being stopped."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        await self._relay("jobs", brief=self.get_query_argument("brief", "0") == "1")


class JobHandler(_Handler):
    """One job."""

    @web.authenticated
    @authorized
    async def delete(self, job_id: str) -> None:
        await self._relay("delete", job_id=job_id)

    @web.authenticated
    @authorized
    async def patch(self, job_id: str) -> None:
        given = self.get_json_body()
        if not isinstance(given, dict):
            raise web.HTTPError(400, "what changes about a job is an object")
        await self._relay("mark", job_id=job_id, given=given)


class StopHandler(_Handler):
    """A request to stop one job."""

    @web.authenticated
    @authorized
    async def post(self, job_id: str) -> None:
        await self._relay("stop", job_id=job_id)


class PanelHandler(_Handler):
    """A panel of one job, in a tab or below a cell."""

    _track_activity = False

    @web.authenticated
    @authorized
    async def post(self, job_id: str) -> None:
        if len(self.request.body) > _MOST_BYTES:
            raise web.HTTPError(413, "the requests of a panel are too long")
        match self.get_json_body():
            case {"panel": str(panel), "seq": int(seq), "messages": [*messages]}:
                await self._relay("panel", job_id=job_id, panel=panel, seq=seq, messages=messages)
            case _:
                raise web.HTTPError(400, "a panel sends its name, the number of its last update, and its messages")


class PageHandler(_Handler):
    """A page that draws jobs."""

    _track_activity = False

    @web.authenticated
    @authorized
    async def post(self, session: str) -> None:
        await self._relay("announce", session=session)


class OutputsHandler(_Handler):
    """The outputs of one notebook."""

    _track_activity = False

    @web.authenticated
    @authorized
    async def get(self) -> None:
        await self._relay("outputs", notebook=self.get_query_argument("notebook", strip=False))


class ComparisonHandler(_Handler):
    """A metric of several jobs."""

    _track_activity = False

    @web.authenticated
    @authorized
    async def get(self) -> None:
        jobs, metric = self.get_query_arguments("job"), self.get_query_argument("metric", "", strip=False)
        if not jobs or not metric:
            raise web.HTTPError(400, "a comparison needs at least one job and a metric")
        await self._relay("compare", jobs=jobs, metric=metric)


class DevicesHandler(_Handler):
    """The devices of this machine."""

    _track_activity = False

    @web.authenticated
    @authorized
    async def get(self) -> None:
        await self._relay("devices", folder=str(self.settings.get("server_root_dir") or "~"))


class RunningHandler(_Handler):
    """Whether a job runs."""

    _track_activity = False

    @web.authenticated
    @authorized
    async def get(self) -> None:
        self.finish(json.dumps(await asyncio.get_running_loop().run_in_executor(None, _any_runs)))


def _any_runs() -> bool:
    return any(record.is_running() for record in records.unended_records())


def addresses(base_url: str) -> list[tuple[str, Any]]:
    """The addresses, each with its handler."""

    def below(*parts: str) -> str:
        return str(url_path_join(base_url, "notebook-accel", *parts))

    return [
        (below("jobs"), ListHandler),
        (below("jobs", _ID), JobHandler),
        (below("jobs", _ID, "stop"), StopHandler),
        (below("jobs", _ID, "panel"), PanelHandler),
        (below("pages", f"({pages.SESSION})"), PageHandler),
        (below("outputs"), OutputsHandler),
        (below("comparison"), ComparisonHandler),
        (below("devices"), DevicesHandler),
        (below("running"), RunningHandler),
    ]
