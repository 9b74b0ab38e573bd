"""The extension of the Jupyter server: jobs and devices, for JupyterLab and Notebook. It never needs a kernel.

    handlers.py       ─ the addresses, behind Jupyter's authentication; start reading here
    reader_process.py ─ starts the process that answers them, and relays
    reader/           ─ what runs there: reads jobs from disk, and devices
    model.py          ─ what the browser gets
    mcp.py            ─ the same jobs as tools for agents, if jupyter-server-mcp is installed
    open_notebooks.py ─ has the kernel of an open notebook start a job for an agent

Jupyter reads `etc/jupyter/jupyter_server_config.d/notebook-accel.json`, which names this module. The package does not
depend on jupyter_server: only `handlers.py`, `mcp.py`, and `open_notebooks.py` import it, and only a Jupyter server
imports those.
"""

from __future__ import annotations

from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "notebook_accel.jupyter"}]


def _load_jupyter_server_extension(server: Any) -> None:
    """Adds the addresses to a Jupyter server, which calls this when it starts, and prepares for launches."""
    from notebook_accel.jupyter.handlers import addresses
    from notebook_accel.launch.engines import base_server
    from notebook_accel.launch.system import own_process

    server.web_app.add_handlers(".*$", addresses(server.web_app.settings["base_url"]))
    own_process.start_thread_if_allowed(base_server.start_again, "notebook-accel-share")
