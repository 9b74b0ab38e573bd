"""What to do about problems with ssh, by what it and the agents have written."""

from __future__ import annotations

import re

MISSING = "cluster='ssh://…' needs the command ssh, which this machine does not have: install OpenSSH's client"
_MOST = 2000
"""Characters of output in a message."""
_OF_SSH = 255
"""The exit code of an error of `ssh` itself."""
_NOT_FOUND = (126, 127)
"""The exit codes of a shell that can't run a command."""
_ADVICE = {
    "could not resolve": """
        there is no host of that name. Check the spelling, or add it to ~/.ssh/config.""",
    "permission denied|too many authentication failures": """
        it does not let you log in without a password. Check the user name (cluster='ssh://USER@HOST'), and add your
        key there with `ssh-copy-id {login}` or to your key agent with `ssh-add`, until `ssh {login} true` asks
        nothing.""",
    "host key|host identification": """
        its host key is not known here, or has changed. Run `ssh {login}` yourself once, and compare the key.""",
    "": """
        it does not answer. Check that it runs and accepts ssh, and that no firewall is between: `ssh {login} true` must
        work.""",
}
"""The meanings of errors of `ssh`, by patterns of their text."""


def explain(name: str, target: str, python: str, code: int | None, output: str) -> str:
    """Why `ssh`, or the agent that it ran, has ended.

    Args:
        name: The host.
        target: The host as `ssh` knows it, with the user and the port.
        python: The Python that was to run there.
        code: The exit code.
        output: What both have written.
    """
    said = output[-_MOST:] or f"exit code {code}, without a message"
    if code == _OF_SSH:
        advice = next(advice for pattern, advice in _ADVICE.items() if re.search(pattern, output, re.IGNORECASE))
        advice = " ".join(advice.split()).format(login=_login(target))
        return f"{name} can't be reached over ssh: {advice} ssh reports: {said}"
    if code in _NOT_FOUND:
        return (
            f"{name} can't run {python}, the Python of this notebook: {said}. Install the same environment there, at "
            "the same path."
        )
    if "No module named" in output:
        return (
            f"{name} has {python}, but not all packages that this notebook uses: {said.splitlines()[-1]}. Install the "
            "same versions there."
        )
    return f"the agent on {name} has ended: {said}"


def slow(name: str, target: str, seconds: float) -> str:
    """The message for a host that accepts the connection and does no more."""
    return (
        f"{name} accepted the connection, but did not run a command within {seconds:g} s: it may be overloaded, or its "
        f"file system hangs. Check that `ssh {_login(target)} true` works."
    )


def _login(target: str) -> str:
    """The arguments of `ssh` for a host."""
    host, _, port = target.rpartition(":")
    return f"-p {port} {host}" if host and port.isdecimal() else target
