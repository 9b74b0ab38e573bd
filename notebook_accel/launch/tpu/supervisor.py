"""The process that calls `torch_xla.launch`: a fork of the server, and the parent of the ranks' processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import sys
import traceback
from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
from typing import NoReturn

from notebook_accel.hardware import tpus
from notebook_accel.launch.rank import main
from notebook_accel.launch.rank.main import RankStart
from notebook_accel.launch.system import own_process
from notebook_accel.launch.tpu import process
from notebook_accel.launch.tpu.environment import cleaned
from notebook_accel.launch.tpu.slots import Slot, TpuGroup
from notebook_accel.launch.tpu.watch import Watch
from notebook_accel.launch.wire.stream import Channel

MODULES = (
    "torch_xla",
    "torch_xla.core.xla_model",
    "torch_xla.distributed.parallel_loader",
    "torch_xla.distributed.xla_multiprocessing",
)
"""What the server imports beside torch. That initializes no device, and starts no thread."""
_ADVICE = {
    "max_workers must be greater than 0": "torch_xla finds no TPU chip on the PCI bus of this machine",
    "libtpu not found": 'libtpu is missing: pip install "notebook-accel[tpu]", and restart the kernel',
    "already in use by": "another process holds the chips: a second notebook, or an earlier cell of this one",
    "Failed to get TPU metadata": "no metadata server describes this TPU; its image must set TPU_ACCELERATOR_TYPE",
}
"""Parts of torch_xla's error messages, and what they mean."""


def wait_for_launch(server: Channel, parent: int) -> NoReturn:
    """Waits, in a fork of the server, to become a supervisor. Until then it touches none of this node's chips."""
    main.settle(parent)
    _warm_up_pool()
    message = next(server.messages(), None)
    if message is None:
        os._exit(0)
    server.close()
    _run_to_exit(RankStart.from_message(message))


def _warm_up_pool() -> None:
    """Starts a process in a pool like torch_xla's, so that the memory that every pool writes to is copied already."""
    fork = multiprocessing.get_context("fork")
    with (
        contextlib.suppress(OSError, BrokenProcessPool),
        ProcessPoolExecutor(1, fork, initializer=own_process.die_with_parent, initargs=(os.getpid(),)) as pool,
    ):
        pool.submit(os.getpid).result()


def run_forked(start: RankStart, parent: int) -> NoReturn:
    """Turns a fork of the server into a supervisor, and supervises to the end."""
    main.settle(parent)
    _run_to_exit(start)


def _run_to_exit(start: RankStart) -> NoReturn:
    code = 1
    try:
        control = Channel(socket.socket(fileno=start.fds[0]))
        own_process.redirect_streams(*start.fds[1:])
        spmd = start.environment.get("NOTEBOOK_ACCEL_STRATEGY") == "spmd"
        own_process.set_environment(cleaned(start.environment))
        _supervise(control, start.heartbeat, spmd=spmd)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        own_process.flush()
        os._exit(code)


def _supervise(control: Channel, heartbeat: float, *, spmd: bool) -> None:
    slots: dict[int, Slot] = {}
    for message in control.messages():
        channel, *pipes = message.fds
        out, err = pipes or (os.dup(1), os.dup(2))
        slots[message.header["rank"]] = Slot(message.header["rank"], message.header["env"], channel, out, err)
        if len(slots) == message.header["size"]:
            break
    else:
        os._exit(0)  # the kernel has ended, or has closed the group
    local, remote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    watch = Watch(control, local)
    watch.start()
    try:
        _refuse_mismatch()
        _repeat_import_setup()
        group = TpuGroup(slots, heartbeat, remote, single=spmd or _is_single(len(slots)))
        process.set_group(group)
        _launch(group, spmd=spmd)
    except BrokenProcessPool:
        pass  # a process has died, which `Watch` reports
    except BaseException as error:
        watch.report_failure(_explain(error))
    watch.finish()


def _launch(group: TpuGroup, *, spmd: bool) -> None:
    import torch_xla

    if spmd:
        import torch_xla.runtime

        torch_xla.runtime.use_spmd()
        process.run_rank(0)
    else:
        torch_xla.launch(process.run_rank, start_method="fork", debug_single_process=group.single)


def _is_single(size: int) -> bool:
    """Whether one rank is to run on one chip. Its bounds are then set here, since Colab's images set those of four."""
    return size == 1 and os.environ.get("PJRT_DEVICE") == "TPU"


def _refuse_mismatch() -> None:
    if "torch_xla" not in sys.modules:
        why = tpus.mismatch()
        try:
            import torch_xla  # noqa: F401
        except Exception as error:
            raise RuntimeError(why or f"torch_xla can't be imported: {error}") from error


def _repeat_import_setup() -> None:
    """Repeats, for this environment, what importing torch_xla set in the server's. Variables that are set stay."""
    import torch_xla

    torch_xla._setup_default_env()
    torch_xla._setup_xla_flags()
    torch_xla._setup_tpu_vm_library_path()


def _explain(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}"
    found = [advice for sign, advice in _ADVICE.items() if sign in text]
    return f"torch_xla could not start the ranks: {text}" + "".join(f". This means: {advice}" for advice in found)
