"""Starts Python processes of this package that modules in the user's folder cannot shadow."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO, Any

from notebook_accel.errors import LaunchError

HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
"""The folder of this package's folder."""
# The interpreter would put the working directory first: a user's `random.py` would then be imported by torch. This
# package itself comes from where it was imported here, wherever that is on the path, and whatever other copy is before
# it; its neighbors do not come along. A kernel that ignores SIGCHLD would pass that on, and then no child could be
# waited for.
_BOOTSTRAP = """\
import sys
sys.path[:] = [folder for folder in sys.path if folder]
import importlib.util, json, os, signal
from importlib.machinery import PathFinder
entry, path, home, arguments, detached = json.loads(sys.argv[1])
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
if detached and os.fork():
    os._exit(0)
sys.path[:] = path
spec = PathFinder.find_spec("notebook_accel", [home])
package = sys.modules["notebook_accel"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
module, _, name = entry.partition(":")
getattr(importlib.import_module(module), name)(*arguments)
"""


def command(entry: str, arguments: Sequence[Any], *, detached: bool = False) -> list[str]:
    """The command line that calls `entry` (`module:function`) with JSON arguments; detached: it orphans itself.

    Raises:
        LaunchError: It is not known which Python runs this process.
    """
    if not sys.executable:
        raise LaunchError(
            f"sys.executable is {sys.executable!r}, so it is not known which Python to start the ranks with: set it to "
            "the path of this notebook's Python"
        )
    return [sys.executable, "-c", _BOOTSTRAP, json.dumps([entry, search_path(), HOME, list(arguments), detached])]


def search_path() -> list[str]:
    """The `sys.path` of a process that is started here: this process's, without the working directory."""
    try:
        here = os.getcwd()
    except FileNotFoundError:
        here = ""
    # As Python does, this skips what isn't a string, such as a `Path`.
    path = [folder for folder in sys.path if isinstance(folder, str) and folder not in ("", here)]
    return path if HOME in path else [*path, HOME]


def start(
    entry: str,
    channel: socket.socket,
    log: IO[bytes],
    *arguments: Any,
    environment: Mapping[str, str] | None = None,
    detached: bool = False,
) -> subprocess.Popen[bytes]:
    """Starts `entry(fd, *arguments)` in a session of its own, with the socket as `fd`, which is closed here.

    Args:
        entry: Written `module:function`.
        channel: The socket for messages to it.
        log: The file for its output.
        arguments: JSON.
        environment: By default this process's own.
        detached: Whether to orphan it: it forks, and the process that is returned ends at once.

    Raises:
        LaunchError: It is not known which Python runs this process.
        OSError: It cannot be started.
    """
    with channel, _without_debugger():
        return subprocess.Popen(
            command(entry, [channel.fileno(), *arguments], detached=detached),
            pass_fds=[channel.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=None if environment is None else dict(environment),
        )


def _without_debugger() -> contextlib.AbstractContextManager[object]:
    """Keeps a debugger of this process out of the new one.

    While debugpy is active, it changes the command of each Python process, which then waits for a client to attach to
    it, too. Jupyter's front ends never do.
    """
    patches = sys.modules.get("_pydev_bundle.pydev_monkey")
    leave_as_it_is = getattr(patches, "skip_subprocess_arg_patch", contextlib.nullcontext)
    found: contextlib.AbstractContextManager[object] = leave_as_it_is()
    return found


def why_it_ended(what: str, log: IO[bytes]) -> str:
    """A message that a process has ended, with its last output."""
    output = "" if log.closed else os.pread(log.fileno(), 2**20, 0).decode(errors="replace").strip()
    return f"{what} has ended" + (f". It said:\n{output[-4000:]}" if output else ".")


def spawn(entry: str, fds: Sequence[int], environment: Mapping[str, str], *arguments: Any) -> int:
    """Starts `entry(*fds, *arguments)` in a session of its own, which inherits `fds`. Returns its process id.

    For a process that reaps its children itself; others use `start`.
    """
    for fd in fds:
        os.set_inheritable(fd, True)
    try:
        return os.posix_spawn(sys.executable, command(entry, [*fds, *arguments]), dict(environment), setsid=True)
    finally:
        for fd in fds:
            os.set_inheritable(fd, False)
