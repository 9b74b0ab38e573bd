"""The addresses of the extension, behind Jupyter's authentication and its check of XSRF tokens.

    GET    /notebook-accel/jobs          the user's last jobs: a `JobListing`
    GET    /notebook-accel/jobs?brief=1  the same, with the progress and metrics only of those that run
    POST   /notebook-accel/jobs/ID/stop  asks a job to stop
    DELETE /notebook-accel/jobs/ID       removes a job that has ended
    GET    /notebook-accel/devices       the devices of this machine: see `device_handlers.py`

Jobs are read on one thread, so that Jupyter's event loop does not wait for the disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado import web

from notebook_accel.jupyter.device_handlers import DevicesHandler

if TYPE_CHECKING:
    from notebook_accel.jupyter.job_list import JobList

_Result = TypeVar("_Result")
_ID = r"([0-9a-f]{6})"
_thread = ThreadPoolExecutor(1, thread_name_prefix="notebook-accel jobs")


@cache
def _job_list() -> JobList:
    from notebook_accel.jupyter.job_list import JobList  # takes a while, and a server may never need it

    return JobList()


class _JobsHandler(APIHandler):
    """What the handlers below share."""

    auth_resource = "notebook_accel"

    async def _with_jobs(self, task: Callable[[JobList], _Result]) -> _Result:
        """Runs a task on the thread that reads jobs."""
        return await asyncio.get_running_loop().run_in_executor(_thread, lambda: task(_job_list()))

    async def _change(self, task: Callable[[JobList], None]) -> None:
        """The same for a request that changes something; its errors become HTTP's."""
        from notebook_accel.jupyter.job_list import JobNotDeletedError, JobRunsError, UnknownJobError

        try:
            await self._with_jobs(task)
        except UnknownJobError as error:
            raise web.HTTPError(404, str(error)) from error
        except JobRunsError as error:
            raise web.HTTPError(409, str(error)) from error
        except JobNotDeletedError as error:
            raise web.HTTPError(500, str(error)) from error
        self.set_status(204)
        self.finish()


class ListHandler(_JobsHandler):
    """The user's jobs."""

    _track_activity = False
    """A page that is open asks again and again, which must not keep an idle server from being stopped."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        brief = self.get_query_argument("brief", "0") == "1"
        listing = await self._with_jobs(lambda jobs: jobs.listing(brief=brief))
        self.finish(listing)


class JobHandler(_JobsHandler):
    """One job."""

    @web.authenticated
    @authorized
    async def delete(self, job_id: str) -> None:
        await self._change(lambda jobs: jobs.delete(job_id))


class StopHandler(_JobsHandler):
    """A request to stop one job."""

    @web.authenticated
    @authorized
    async def post(self, job_id: str) -> None:
        await self._change(lambda jobs: jobs.stop(job_id))


def addresses(base_url: str) -> list[tuple[str, Any]]:
    """The addresses, each with its handler."""

    def below(*parts: str) -> str:
        return str(url_path_join(base_url, "notebook-accel", *parts))

    return [
        (below("jobs"), ListHandler),
        (below("jobs", _ID), JobHandler),
        (below("jobs", _ID, "stop"), StopHandler),
        (below("devices"), DevicesHandler),
    ]
