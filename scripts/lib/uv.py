"""Installs what pip would, from where pip would, with uv, which downloads side by side and links files from its cache.

    python scripts/lib/uv.py ARGUMENTS...    the arguments of `pip install` that uv has too

uv reads none of pip's settings, so they are handed on to it. Ends with 2, before anything is installed, where it does
not know what one of them means.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping

_NAMES = {
    "build-constraint": "UV_BUILD_CONSTRAINT",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "constraint": "UV_CONSTRAINT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "index-url": "UV_DEFAULT_INDEX",
    "no-index": "UV_NO_INDEX",
    "proxy": "ALL_PROXY",
    "retries": "UV_HTTP_RETRIES",
    "timeout": "UV_HTTP_TIMEOUT",
    "trusted-host": "UV_INSECURE_HOST",
}
"""What uv calls a setting of pip's."""
_WITHOUT_MEANING = {
    "disable-pip-version-check",
    "no-input",
    "no-warn-script-location",
    "progress-bar",
    "quiet",
    "require-virtualenv",
    "root-user-action",
}
"""Settings of pip's that change nothing of what it installs."""


def settings(listed: str) -> dict[str, str]:
    """Reads what `pip config list` prints: lines such as `global.index-url='https://…'`.

    The environment comes before what is set for `install`, and that before what is set for all commands.
    """
    order = {"global": 0, "install": 1, ":env:": 2}
    found: dict[str, tuple[int, str]] = {}
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.partition(".")
        if section in order:
            found[name] = max((order[section], ast.literal_eval(value)), found.get(name, (-1, "")))
    return {name: value for name, (_, value) in found.items()}


def environ(given: Mapping[str, str]) -> dict[str, str]:
    """The variables by which uv does what pip's settings say.

    Raises:
        ValueError: for a setting whose meaning is not known.
    """
    unknown = given.keys() - _NAMES.keys() - _WITHOUT_MEANING
    if unknown:
        raise ValueError(f"pip's settings are not for uv: {', '.join(sorted(unknown))}")
    variables = {_NAMES[name]: " ".join(value.split()) for name, value in given.items() if name in _NAMES}
    if "UV_FIND_LINKS" in variables:
        variables["UV_FIND_LINKS"] = variables["UV_FIND_LINKS"].replace(" ", ",")
    # As pip does, look for the best version on every index, and compile what is installed.
    return {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_COMPILE_BYTECODE": "1", **variables}


def main(*arguments: str) -> int:
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True)
    try:
        variables = environ(settings(listed.stdout))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable, *arguments]
    # What the user has set for uv itself holds.
    return subprocess.run(command, env={**variables, **os.environ}).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
