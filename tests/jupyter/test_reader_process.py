"""The process that reads for the Jupyter server: it answers, is replaced when it dies, and ends when nobody asks."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import psutil

from notebook_accel.jupyter.reader_process import Answer, ReaderProcess
from tests.jupyter.conftest import RecordedJob, end


def readers() -> list[psutil.Process]:
    """The processes that this one has started to read."""
    return [child for child in psutil.Process().children() if "jupyter.reader" in " ".join(child.cmdline())]


def test_a_reader_that_dies_says_so_and_is_replaced() -> None:
    async def asked() -> list[Answer]:
        process = ReaderProcess()
        first = await process.ask("jobs", brief=True)
        [reader] = readers()
        reader.suspend()
        lost = asyncio.ensure_future(process.ask("jobs", brief=True))
        await asyncio.sleep(0)
        reader.kill()
        found = [first, await lost, await process.ask("jobs", brief=True)]
        process.close()
        await process.ended()
        return found

    first, lost, second = asyncio.run(asked())
    assert (first.status, second.status) == (200, 200)
    assert json.loads(second.body)["problem"] == ""
    assert not readers()
    assert (lost.status, b"has ended unexpectedly" in lost.body) == (500, True)


def test_a_reader_ends_when_nobody_asks(tmp_path: Path) -> None:
    async def asked() -> None:
        process = ReaderProcess(idle=0.05)
        assert (await process.ask("devices", folder=str(tmp_path))).status == 200
        assert (await process.ask("stop", job_id="ffffffffffff")).status == 404
        await process.ended()
        assert not readers()
        assert (await process.ask("jobs")).status == 200
        await process.ended()

    asyncio.run(asked())
    assert not readers()


def test_a_reader_that_takes_its_time_is_not_idle() -> None:
    async def asked() -> Answer:
        process = ReaderProcess(idle=0.05)
        await process.ask("jobs")
        [reader] = readers()
        reader.suspend()
        asyncio.get_running_loop().call_later(0.2, reader.resume)
        late = await process.ask("jobs")
        await process.ended()
        return late

    assert asyncio.run(asked()).status == 200


def test_text_that_is_not_valid_unicode_is_answered() -> None:
    """A path can have bytes that aren't UTF-8, which Python reads as surrogates."""
    end(RecordedJob("train\udcff", checkpoint_dir="/tmp/\udcff"))

    async def asked() -> Answer:
        process = ReaderProcess()
        found = await process.ask("jobs")
        process.close()
        await process.ended()
        return found

    found = asyncio.run(asked())
    assert (found.status, json.loads(found.body)["jobs"][0]["title"]) == (200, "train?()")
