"""The supervisor's second thread, which reports how ranks have ended."""

import json
import multiprocessing
import os
import socket
import subprocess
import sys

from notebook_accel.launch.tpu.process import introduce
from notebook_accel.launch.tpu.watch import Watch
from notebook_accel.launch.wire.stream import Channel, pair


def test_a_process_that_has_ended_before_it_is_known_is_reported() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(60)
    own, supervisors = (Channel(end) for end in pair())
    received, sent = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for report in ({"pid": ended.pid, "ranks": [0, 1]}, {"rank": 0, "code": 1}):
        sent.send(json.dumps(report).encode())
    watch = Watch(supervisors, received)
    watch.start()
    watch.finish()
    messages = own.receive(wait=False) or []
    # Nobody knows any more how a process has ended that is gone and had not reported it.
    assert {each.header["rank"]: each.header["status"] for each in messages} == {0: 1, 1: -9}
    for end in (own, supervisors, received, sent):
        end.close()


def test_a_process_waits_until_it_is_watched() -> None:
    own, supervisors = (Channel(end) for end in pair())
    received, sent = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def introduce_and_exit() -> None:
        introduce(sent, [0])
        os._exit(7)

    process = multiprocessing.get_context("fork").Process(target=introduce_and_exit)
    process.start()
    process.join(0.5)  # it would have ended, and nobody would know its status
    watch = Watch(supervisors, received)
    watch.start()
    [message] = own.receive(wait=True) or []
    assert (message.header["rank"], message.header["status"]) == (0, 7)
    watch.finish()
    process.join()
    for end in (own, supervisors, received, sent):
        end.close()
