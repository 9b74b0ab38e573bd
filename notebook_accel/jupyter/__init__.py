"""The extension of the Jupyter server: jobs and devices, for JupyterLab and Notebook. It never needs a kernel.

    job_model.py ─ what the browser gets
    job_list.py  ─ lists the user's jobs, stops one, or deletes one; start reading here
    job_fold.py  ─ a job on disk, read once and then only what was added
    job_row.py   ─ one job as the browser gets it
    handlers.py  ─ the addresses, behind Jupyter's authentication

    device_model.py    ─ what the browser gets about devices
    device_history.py  ─ reads the devices of this machine, and remembers five minutes
    device_handlers.py ─ their address

Jupyter reads `etc/jupyter/jupyter_server_config.d/notebook-accel.json`, which names this module. The package does not
depend on jupyter_server: only `handlers.py` and `device_handlers.py` import it, and only a Jupyter server imports that.
"""

from __future__ import annotations

from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "notebook_accel.jupyter"}]


def _load_jupyter_server_extension(server: Any) -> None:
    """Adds the addresses to a Jupyter server, which calls this when it starts."""
    from notebook_accel.jupyter.handlers import addresses

    server.web_app.add_handlers(".*$", addresses(server.web_app.settings["base_url"]))
