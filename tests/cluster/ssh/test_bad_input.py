"""What can't work over ssh is said with the name of the host and what to do, and nothing is left running there."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from notebook_accel.launch.cluster.agent_launcher import ClusterError
from notebook_accel.launch.cluster.bridge import agents
from notebook_accel.launch.cluster.launchers.ssh import SshLauncher
from notebook_accel.launch.engines.contract import NodeRequest
from tests.cluster.ssh.rig import Hosts
from tests.live_notebook import wait_until


@pytest.fixture(autouse=True)
def nothing_is_left(hosts: Hosts) -> Iterator[None]:
    before = {process.pid for process in hosts.processes()}
    yield
    # A fork server that has just been started hears of it once it has imported torch.
    wait_until(lambda: {process.pid for process in hosts.processes()} <= before, 30, lambda: str(hosts.processes()))


def error_of(address: str, python: str = sys.executable) -> str:
    """Has agents start on all hosts; returns why they don't."""
    launcher = SshLauncher(address, python=python)
    launcher.connect(10)
    with pytest.raises(ClusterError) as caught:
        agents.start(launcher, NodeRequest(address.count(",") + 1, cpus=1), {})
    return str(caught.value)


def package(folder: Path, name: str, version: str) -> Path:
    """A folder with an installed package, as far as its version is concerned."""
    place = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return folder


def test_a_host_that_does_not_answer_is_named(hosts: Hosts):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    hosts.add_alias("closed", "bob", Port=str(port))
    error = error_of("ssh://ada,closed")
    assert error.startswith("closed can't be reached over ssh: it does not answer."), error
    assert "`ssh closed true` must work" in error
    assert "Connection refused" in error
    assert "ada" not in error


def test_a_name_that_resolves_nowhere_is_named(hosts: Hosts):
    hosts.add_alias("lost", "bob", HostName="nowhere.invalid")
    error = error_of("ssh://ada,lost")
    assert error.startswith("lost can't be reached over ssh: there is no host of that name."), error
    assert "add it to ~/.ssh/config" in error


def test_a_user_who_may_not_log_in_is_told_how(hosts: Hosts):
    error = error_of("ssh://ada,nobody-here@bob")
    assert error.startswith("bob can't be reached over ssh: it does not let you log in without a password."), error
    assert "`ssh-copy-id nobody-here@bob`" in error


def test_a_host_whose_key_is_not_known_is_not_trusted(hosts: Hosts):
    hosts.add_alias("stranger", "bob", UserKnownHostsFile="/dev/null")
    error = error_of("ssh://ada,stranger")
    assert error.startswith("stranger can't be reached over ssh: its host key is not known here"), error


def test_all_hosts_that_cannot_be_used_are_named_at_once(hosts: Hosts):
    hosts.add_alias("lost", "bob", HostName="nowhere.invalid")
    error = error_of("ssh://nobody-here@ada,lost,bob")
    assert [line.split()[0] for line in error.splitlines() if "over ssh" in line] == ["ada", "lost"], error


def test_a_host_without_this_python_is_named():
    error = error_of("ssh://ada,bob", "/nowhere/bin/python")
    assert error.startswith("ada can't run /nowhere/bin/python, the Python of this notebook: "), error
    assert "Install the same environment there, at the same path." in error


def test_a_host_without_the_package_is_named(tmp_path: Path):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # without what is installed
    python.chmod(0o700)
    error = error_of("ssh://ada", str(python))
    assert "ada has" in error
    assert "No module named 'notebook_accel'. Install the same versions there." in error


@pytest.mark.parametrize("name", ["notebook-accel", "torch"])
def test_another_version_is_named(hosts: Hosts, tmp_path: Path, name: str):
    hosts.add_alias(f"newer-{name}", "bob", package(tmp_path, name, "99.0"))
    error = error_of(f"ssh://ada,newer-{name}")
    assert error.startswith(f"newer-{name} (127.0.0.1) has {name} 99.0 (here "), error
    assert "Install the same versions on every machine" in error


def test_another_python_is_named(hosts: Hosts, tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text(
        "import platform\nplatform.python_version_tuple = lambda: ('3', '9', '1')\n"
    )
    hosts.add_alias("older", "bob", tmp_path)
    error = error_of("ssh://ada,older")
    assert error.startswith("older (127.0.0.1) has Python 3.9 (here "), error


def test_a_host_that_fails_after_it_has_been_asked_is_named_and_asked_again(hosts: Hosts):
    launcher = SshLauncher("ssh://ada,bob")
    assert [node.host for node in launcher.survey()] == ["ada", "bob"]
    hosts.kill("bob")
    try:
        with pytest.raises(ClusterError, match=r"^bob can't be reached over ssh"):
            agents.start(launcher, NodeRequest(2, cpus=1), {})
    finally:
        hosts.start("bob")
    started, connected = agents.start(launcher, NodeRequest(2, cpus=1), {})
    assert [(agent.host, agent.node_rank) for agent in connected] == [("ada", 0), ("bob", 1)]
    for agent in connected:
        agent.connection.close()
    started.stop()


def test_what_a_login_shell_prints_does_no_harm(hosts: Hosts, tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text("print('Welcome!')\n")
    hosts.add_alias("talkative", "bob", tmp_path)
    assert [node.host for node in SshLauncher("ssh://talkative").survey()] == ["talkative"]
