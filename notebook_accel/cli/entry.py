"""The console script. A launch starts the process that imports torch before it parses options, to save time."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from notebook_accel.cli.exit_codes import INTERRUPTED


def run() -> NoReturn:
    """Runs the command line to its end.

    The exit code is 0, 2 for errors that the user can correct, 130 after an interrupt, or that of a script that failed.
    """
    _open_closed_streams()
    finish = None
    try:
        if sys.argv[1:2] == ["launch"]:
            from notebook_accel.cli.launch import script_job

            finish = script_job.finish
            script_job.warm()
        from notebook_accel.cli import main

        main.run()
    except KeyboardInterrupt:  # during these imports
        sys.stderr.write("interrupted\n")
        sys.exit(INTERRUPTED)
    finally:
        if finish is not None:
            finish()


def _open_closed_streams() -> None:
    """Opens the null device in place of standard streams that the shell has closed, as `>&-` does.

    Otherwise, the next pipe or socket would get the stream's descriptor, and ranks would write to it.
    """
    for fd, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != fd:
                os.dup2(null, fd)
                os.close(null)
            os.set_inheritable(fd, True)
            setattr(sys, name, open(fd, mode))  # noqa: SIM115  # lives as long as this
