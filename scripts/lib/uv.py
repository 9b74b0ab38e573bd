"""Installs what pip would, from where pip would, with uv, which downloads side by side and links files from its cache.

    python scripts/lib/uv.py install ARGUMENTS...    the arguments of `pip install` that uv has too
    python scripts/lib/uv.py compile ARGUMENTS...    those of `uv pip compile`
    python scripts/lib/uv.py --as-published …        leaves out the settings that cap or replace versions

uv reads none of pip's settings, so they are handed on to it, as variables or, where it has none, as options. Ends with
2, before anything is installed, where one of them is set that uv can't be told.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping

_VARIABLES = {
    "build-constraint": "UV_BUILD_CONSTRAINT",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "index-url": "UV_DEFAULT_INDEX",
    "proxy": "ALL_PROXY",
    "retries": "UV_HTTP_RETRIES",
    "timeout": "UV_HTTP_TIMEOUT",
    "trusted-host": "UV_INSECURE_HOST",
}
"""The variable of uv's that has the value of a setting of pip's."""
_SWITCHES = {
    "compile": ("UV_COMPILE_BYTECODE", "1"),
    "no-cache-dir": ("UV_NO_CACHE", "1"),
    "no-compile": ("UV_COMPILE_BYTECODE", "0"),
    "pre": ("UV_PRERELEASE", "allow"),
    "require-hashes": ("UV_REQUIRE_HASHES", "1"),
}
"""What a setting that is on comes to."""
_OPTIONS = {"constraint": "--constraint", "no-binary": "--no-binary", "only-binary": "--only-binary"}
"""The option of uv's that is given once for each value: it has no variable, or one that an option on the line hides."""
_OFF = {"0", "f", "false", "n", "no", "off"}
_WITHOUT_MEANING = {
    "break-system-packages",
    "disable-pip-version-check",
    "no-color",
    "no-input",
    "no-python-version-warning",
    "no-warn-conflicts",
    "no-warn-script-location",
    "progress-bar",
    "quiet",
    "require-virtualenv",
    "root-user-action",
    "verbose",
}
"""Settings of pip's that change nothing of what it installs into an environment."""
_VERSIONS = {
    *("build-constraint", "constraint", "extra-index-url", "find-links", "no-binary", "no-index", "only-binary", "pre"),
    "require-hashes",
}
"""Settings by which a machine caps or replaces the versions that its index has."""


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


def translated(given: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The variables and the options by which uv does what pip's settings say.

    Raises:
        ValueError: for a setting that uv can't be told.
    """
    known = {*_VARIABLES, *_SWITCHES, *_OPTIONS, *_WITHOUT_MEANING, "cache-dir", "no-index"}
    if unknown := given.keys() - known:
        raise ValueError(f"uv can't be told what pip is: {', '.join(sorted(unknown))}")
    # As pip does, look for the best version on every index, and compile what is installed.
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_COMPILE_BYTECODE": "1"}
    options = []
    for name, value in given.items():
        values = value.split()
        # pip takes `no-cache-dir` for said whatever its value, as long as that is one.
        is_on = name == "no-cache-dir" or value.strip().lower() not in _OFF
        if name in _VARIABLES:
            variables[_VARIABLES[name]] = ("," if name == "find-links" else " ").join(values)
        elif name in _SWITCHES and is_on:
            variables.update([_SWITCHES[name]])
        elif name in _OPTIONS:
            separate = values if name == "constraint" else value.replace(",", " ").split()
            options += [word for each in separate for word in (_OPTIONS[name], each)]
        elif name == "no-index" and is_on:
            options.append("--no-index")
        elif name == "cache-dir":
            variables["UV_CACHE_DIR"] = os.path.join(value.strip(), "uv")
    return variables, options


def main(*arguments: str) -> int:
    as_published = arguments[0] == "--as-published"
    command, *options = arguments[as_published:]
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True)
    given = settings(listed.stdout)
    if as_published:
        given = {name: value for name, value in given.items() if name not in _VERSIONS}
    try:
        variables, translated_options = translated(given)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if command == "install" and "--python" not in options:
        options = ["--python", sys.executable, *options]
    # What the user has set for uv itself holds.
    return subprocess.run(
        [sys.executable, "-m", "uv", "pip", command, "--quiet", *translated_options, *options],
        env={**variables, **os.environ},
    ).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
