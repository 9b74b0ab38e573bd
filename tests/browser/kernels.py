"""The kernels that a front end can start: this environment's own, and older ipykernels in environments of their own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests import environments

NEWEST = "newest"
"""The ipykernel that is installed here."""
OLDER = ("7.3", "6.29")
_LAUNCH = {
    # Up to 7.3 a request that arrives while the kernel replies to another is at times not read, and its cell waits for
    # ever: ipykernel's issue 1554. This is what 7.4 does.
    "7.3": """
from ipykernel import kernelapp, subshell_manager
def send(self, message):
    kernelapp.IPKernelApp.instance().kernel.shell_stream.send_multipart(message)
subshell_manager.SubshellManager._send_on_shell_channel = send
kernelapp.launch_new_instance()
"""
}


def install(names: list[str], folder: Path) -> None:
    """Puts a kernelspec of each name into a folder that is on `JUPYTER_PATH`."""
    for name in names:
        python = Path(sys.executable) if name == NEWEST else environments.python(name)
        launch = ["-c", _LAUNCH[name]] if name in _LAUNCH else ["-m", "ipykernel_launcher"]
        spec = {
            "argv": [str(python), *launch, "-f", "{connection_file}"],
            "display_name": f"ipykernel {name}",
            "language": "python",
            "metadata": {"debugger": True},
        }
        place = folder / "kernels" / name
        place.mkdir(parents=True)
        (place / "kernel.json").write_text(json.dumps(spec))
