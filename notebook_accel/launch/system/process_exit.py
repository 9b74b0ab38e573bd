"""Ends a process that has run the user's code in the order of an interpreter's exit, but without finalization.

While an interpreter finalizes, every thread that requests the GIL exits. In a thread of C++ code, this unwinds through
destructors, which must not throw, and aborts the process: `terminate called without an active exception`. The threads
of torch's process groups request the GIL to free the tensors of their last collective, often after the last line of a
script. (From Python 3.14 on, they wait instead.) A process with such threads therefore does here everything that an
interpreter does before finalization, and should then end with `os._exit`.
"""

from __future__ import annotations

import _io
import atexit
import contextlib
import gc
import sys
import threading
import traceback

from notebook_accel.launch.system import process_setup

NOTICE_AFTER = 5.0
"""Seconds for which a process waits for its threads, or for its exit handlers, before it says so."""
_MOST_NAMES = 5
_MOST_FRAMES = 8
_EXPECTED = "checkpoint"
"""The name of the thread that writes the last checkpoint of a training, which ends by itself."""
_NO_SWITCH = 3600.0
"""Seconds after which a thread that waits for Python's lock may have it."""


def finish(*, wait: bool) -> None:
    """Waits for threads that are not daemons, runs what is registered for the exit, and writes out what is buffered.

    Args:
        wait: Whether to wait for those threads, and for collectives on the device.
    """
    if wait:
        _destroy_device_group()
        _join_threads()
    # A DataLoader's iterator that is collected as part of a cycle waits for its workers for five seconds, because its
    # queues are closed before it can notify them. Otherwise, multiprocessing's exit handler ends them.
    gc.disable()
    _run_exit_handlers()
    process_setup.flush()
    flush_files()


def remember_exit_handlers() -> None:
    """Tells those that imports have registered, which don't hang, from those that the user's code registers later."""
    global _known_handlers
    _known_handlers = atexit._ncallbacks()


_known_handlers = 0


def _run_exit_handlers() -> None:
    notice = threading.Timer(NOTICE_AFTER, _show_exit_handler, (threading.get_ident(),))
    notice.daemon = True
    if atexit._ncallbacks() > _known_handlers:
        with contextlib.suppress(RuntimeError):  # the system allows no further thread
            notice.start()
    atexit._run_exitfuncs()
    notice.cancel()


def _show_exit_handler(thread: int) -> None:
    """Shows where the exit handler is that keeps this process from ending."""
    frames = traceback.extract_stack(sys._current_frames().get(thread))
    own = max((number for number, each in enumerate(frames) if each.filename == __file__), default=-1)
    stack = traceback.format_list(frames[own + 1 :][-_MOST_FRAMES:])
    where = f"is here:\n{''.join(stack)}" if stack else "is in C code\n"
    sys.stderr.write(
        "notebook-accel: the code has ended, but its process still runs an exit handler (atexit). An interrupt ends "
        f"it. It {where}"
    )
    sys.stderr.flush()


def _join_threads() -> None:
    """Waits for threads that are not daemons. An exception, such as an interrupt, ends only the wait, as in Python."""
    try:
        if _remaining_threads():
            notice = threading.Timer(NOTICE_AFTER, _name_threads)
            notice.daemon = True
            notice.start()
        threading._shutdown()  # type: ignore[attr-defined]
    except BaseException as error:
        with contextlib.suppress(Exception):
            sys.stderr.write(f"Exception ignored in: {threading!r}\n")
            traceback.print_exception(error)


def _remaining_threads() -> list[threading.Thread]:
    """The threads that this process waits for before it ends."""
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    return [thread for thread in others if not thread.daemon and thread.name != _EXPECTED]


def _name_threads() -> None:
    """Says which threads keep this process from ending; otherwise, what it has done looks finished, and it hangs."""
    names = [thread.name for thread in _remaining_threads()]
    if names:
        shown = ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")
        sys.stderr.write(
            f"notebook-accel: the code has ended, but its process waits for {len(names)} "
            f"thread{'s' if len(names) > 1 else ''} to end, too: {shown}. Stop and join each in the code, or start it "
            "with daemon=True; an interrupt ends them now\n"
        )
        sys.stderr.flush()


def has_process_group() -> bool:
    """Whether torch's process group is open, whose threads an interpreter that finalizes can't end."""
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and distributed.is_available() and distributed.is_initialized()


def clear_main() -> None:
    """Clears the names of `__main__`, as an interpreter does: files are closed, finalizers run."""
    sys.setswitchinterval(_NO_SWITCH)  # daemon threads must not lose their names
    names = vars(sys.modules["__main__"])
    private = [name for name in names if name.startswith("_") and not name.startswith("__")]
    for name in [*private, *names]:  # in Python's order
        if name != "__builtins__":
            names[name] = None


def flush_files() -> None:
    """Flushes files that have not been closed, since they would flush only when they are freed."""
    found = [each for each in gc.get_objects() if issubclass(type(each), _io._IOBase)]
    # From the outermost to the innermost, since each writes into the next.
    for text in found:
        if isinstance(text, _io._TextIOBase):
            _flush(text)
    for buffered in found:
        if isinstance(buffered, _io._BufferedIOBase) and type(buffered).__module__ != "_io":
            with contextlib.suppress(Exception):
                buffered.close()  # a compressed file needs its own end
    for buffered in found:
        if isinstance(buffered, (_io.BufferedWriter, _io.BufferedRandom)):
            _flush(buffered)


def _flush(file: _io._IOBase) -> None:
    with contextlib.suppress(Exception):  # it is closed, only for reading, or its disk is full
        file.flush()


def _destroy_device_group() -> None:
    """Closes the group whose collectives run on a device: they would end with this process, and hang the others.

    On the CPU, no collective outlives its call, and gloo takes 20 ms to shut down.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized() and has_process_group():
        with contextlib.suppress(Exception):
            torch.distributed.destroy_process_group()
