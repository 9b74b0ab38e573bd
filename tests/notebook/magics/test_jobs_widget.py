"""The table of jobs sends nothing while no page shows it, since Jupyter's server would store that."""

from __future__ import annotations

from notebook_accel.notebook.magics.jobs_widget import JobsWidget


def row(ran: str) -> dict[str, object]:
    return {"id": "a1b2c3d4e5f6", "cells": ["a1b2c3d4e5f6", ran], "live": True}


def test_rows_are_sent_while_a_page_shows_them() -> None:
    stopped: list[str] = []
    table = JobsWidget(["Job", "Ran"], [row("0 s")], stopped.append, lambda job: None)

    def shown(ran: str) -> bool:
        table.update([row(ran)])
        return table.rows == [row(ran)]

    assert shown("1 s")  # nothing is known of a page that never says anything while the kernel is busy
    for page in ("one", "other"):
        table.receive(page, {"cmd": "ready"})
    table.receive("one", {"cmd": "left"})
    assert shown("2 s")
    table.receive("other", {"cmd": "left"})
    assert not shown("3 s")
    table.receive("one", {"cmd": "stop", "job": "a1b2c3d4e5f6"})
    assert stopped == ["a1b2c3d4e5f6"]
    assert shown("4 s")
