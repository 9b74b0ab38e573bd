"""This process as the system knows it: how it begins and ends, its parent, its children, its threads.

Ranks and supervisors set themselves up first, because a fork inherits everything from the fork server.
"""

from __future__ import annotations

import _io
import atexit
import contextlib
import contextvars
import ctypes
import errno
import gc
import mmap
import os
import signal
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from notebook_accel.errors import LaunchError
from notebook_accel.launch.system.limits import explain_refusal

_blas: Any = None
NOTICE_AFTER = 5.0
"""Seconds for which a process waits for its threads, or for its exit handlers, before it says so."""
_MOST_NAMES = 5
_MOST_FRAMES = 8
_EXPECTED = "checkpoint"
"""The name of the thread that writes the last checkpoint of a training run, which ends by itself."""
_NO_SWITCH = 3600.0
"""Seconds after which a thread that waits for Python's lock may have it."""
_known_handlers = 0
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_library = ctypes.CDLL(None, use_errno=True)
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_LINE_BUFFERED = 1  # _IOLBF
_MAP_FIXED = 0x10  # on Linux and macOS


def find_thread_pools() -> None:
    """Finds, once and before the forks, the thread pools of libraries that `limit_threads` limits."""
    global _blas
    with contextlib.suppress(ImportError):
        from threadpoolctl import ThreadpoolController

        _blas = ThreadpoolController()


def initialize(parent: int) -> None:
    """Does the setup that every launch needs: a session, default signal handlers, and an empty `__main__`."""
    if os.getsid(0) != os.getpid():
        os.setsid()
    die_with_parent(parent)
    gc.enable()
    _reset_signals()
    _replace_main()


def flush() -> None:
    """Flushes the buffers of Python and C."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # it is closed, or `None`
            stream.flush()
    _library.fflush(None)


def set_environment(environment: Mapping[str, str]) -> None:
    """Sets the environment of this process, with as few changes as possible."""
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    for name, value in environment.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def redirect_streams(out: int, err: int) -> None:
    """Redirects descriptors 1 and 2 to the pipes of the driver, so that it also gets output of C code and children."""
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    for source, target in ((out, 1), (err, 2)):
        os.dup2(source, target)
        os.close(source)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  # lives as long as the process
    for fd, name in ((1, "stdout"), (2, "stderr")):
        stream = open(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def limit_threads() -> None:
    """Limits the thread pools that are loaded; those that are loaded later read `OMP_NUM_THREADS`."""
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]  # one number for each level of nesting
    threads = max(1, int(first)) if first.isdecimal() else 1
    if _blas is not None:
        _blas.limit(limits=threads, user_api="blas")
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)


def _reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for signum in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(signum, signal.SIG_DFL)


def _replace_main() -> None:
    """Creates a new `__main__` like a notebook's: empty, and without a file that workers could try to run."""
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main


def finish(*, wait: bool) -> None:
    """Ends what the user's code has left, in the order of an interpreter's exit, but without finalization.

    Waits for threads that are not daemons, runs what is registered for the exit, and writes out what is buffered. While
    an interpreter finalizes, every thread that requests the GIL exits. In a thread of C++ code, this unwinds through
    destructors, which must not throw, and aborts the process: `terminate called without an active exception`. The
    threads of torch's process groups request the GIL to free the tensors of their last collective, often after the last
    line of a script. (From Python 3.14 on, they wait instead.) A process with such threads therefore does here
    everything that an interpreter does before finalization, and should then end with `os._exit`.

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
    flush()
    flush_files()


def remember_exit_handlers() -> None:
    """Tells those that imports have registered, which don't hang, from those that the user's code registers later."""
    global _known_handlers
    _known_handlers = atexit._ncallbacks()


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


def adopt_orphans() -> None:
    """Makes this process adopt the processes that its descendants leave behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def find_ended_child() -> int | None:
    """The ID of a child that has ended and is not reaped, or `None`."""
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return found.si_pid if found else None


def reap_children() -> bool:
    """Reaps the children that have ended; returns whether there are others."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def children() -> list[int]:
    """This process's children, orphans that it has adopted among them."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def shares_session(pid: int) -> bool:
    """Whether a process belongs to the session of this one."""
    try:
        return os.getsid(pid) == os.getsid(0)
    except ProcessLookupError:
        return False


def kill_children() -> None:
    """Kills and reaps all children, and with `adopt_orphans` all descendants."""
    while found := children():
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def die_with_parent(parent: int) -> None:
    """Makes the system kill this process when its parent ends; exits at once if the parent has already ended.

    The signal is sent when the parent's *thread* ends that forked, so the parent must have a single thread. It survives
    `exec`.
    """
    if sys.platform == "linux":
        _library.prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)


def signal_at_end_of_parent(signum: int) -> None:
    """Makes the system send this process a signal whenever its parent, or the thread that forked it, ends."""
    if sys.platform == "linux":
        _library.prctl(_PARENT_DEATH_SIGNAL, signum, 0, 0, 0)


def watch(pid: int) -> int | None:
    """A descriptor that is readable once a process has ended, which need not be a child; `None` if there is none."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:  # it has ended, or Linux is older than 5.3
        return None


def outlive_parent() -> None:
    """Undoes `die_with_parent`."""
    if sys.platform == "linux":
        _library.prctl(_PARENT_DEATH_SIGNAL, 0, 0, 0, 0)


def line_buffer_c_stdout() -> None:
    """Makes C code flush standard output at each line, even though it is a pipe."""
    if sys.platform == "linux":
        _library.setvbuf(ctypes.c_void_p.in_dll(_library, "stdout"), None, _LINE_BUFFERED, 0)


def map_over(address: int, size: int, fd: int) -> None:
    """Maps a file copy-on-write in place of a part of an earlier mapping, with which it is unmapped.

    Raises:
        OSError: The system refuses it.
    """
    call = _library.mmap
    call.restype = ctypes.c_void_p
    call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
    protection, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | _MAP_FIXED
    if call(address, size, protection, flags, fd, 0) != address:
        code = ctypes.get_errno()
        raise OSError(code, f"a file can't be mapped: {os.strerror(code)}")


def start_thread(target: Callable[[], object], name: str) -> threading.Thread:
    """Starts a thread that this process doesn't wait for at its end, and whose output appears below the current cell.

    Raises:
        LaunchError: The system allows no further thread.
    """
    context = contextvars.copy_context()  # has the cell's header
    thread = threading.Thread(target=context.run, args=(target,), name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        why = explain_refusal(OSError(errno.EAGAIN, str(error)))
        raise LaunchError(f"what runs in the background needs a thread: {why}") from error
    return thread


def start_thread_if_allowed(target: Callable[[], object], name: str) -> threading.Thread | None:
    """Starts such a thread, or returns `None` if the system allows no further one.

    For work that its caller can also do itself, or later, or not at all.
    """
    try:
        return start_thread(target, name)
    except LaunchError:
        return None


@contextlib.contextmanager
def raise_on_sigint() -> Iterator[None]:
    """Makes SIGINT raise `KeyboardInterrupt` while the main thread waits for user input, whatever handles it otherwise.

    Does nothing off the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
