"""Lists of hosts for `ssh`, and what its errors mean."""

import pytest

from notebook_accel.config import LaunchConfig, kinds
from notebook_accel.errors import ConfigurationError
from notebook_accel.launch.cluster.launchers import ssh
from notebook_accel.launch.plan import cluster_nodes


@pytest.mark.parametrize("address", ["ssh://ada", "ssh://ada,bob", "ssh://root@10.0.0.1:2222,a_b@[::1]:22,node-7.lan"])
def test_hosts_may_have_a_user_and_a_port(address: str) -> None:
    assert kinds.cluster.check("cluster", address) == address


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("ssh://", "'' is not a host"),
        ("ssh://ada,", "'' is not a host"),
        ("ssh://ada bob", "'ada bob' is not a host"),
        ("ssh://ada,-oProxyCommand=reboot", "'-oProxyCommand=reboot' is not a host"),
        ("ssh://-F", "'-F' is not a host"),
        ("ssh://-x@ada", "'-x@ada' is not a host"),
        ("ssh://ada:ssh", "'ada:ssh' is not a host"),
        ("ssh://ada:0", "'ada:0' has no such port"),
        ("ssh://ada,bob:65536", "'bob:65536' has no such port"),
        ("ssh://ada,bob,ada", "names ada twice"),
    ],
)
def test_what_is_no_list_of_hosts_is_refused(address: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        kinds.cluster.check("cluster", address)


def test_all_hosts_are_used_unless_it_is_said_how_many() -> None:
    def count(**given: object) -> int:
        return cluster_nodes.with_all_hosts(LaunchConfig(cluster="ssh://a,b,c", **given)).num_nodes  # type: ignore[arg-type]

    assert count() == 3
    assert count(num_nodes=2) == 2
    assert count(num_nodes=1, sources={"num_nodes": "the call"}) == 1
    with pytest.raises(ConfigurationError, match="num_nodes=4 is more than the 3 hosts of cluster='ssh://a,b,c'"):
        count(num_nodes=4)
    assert cluster_nodes.with_all_hosts(LaunchConfig(cluster="slurm")).num_nodes == 1


@pytest.mark.parametrize(
    ("code", "output", "said"),
    [
        (255, "ssh: connect to host ada port 22: Connection timed out", "it does not answer"),
        (255, "ssh: Could not resolve hostname ada: Name or service not known", "there is no host of that name"),
        (255, "me@ada: Permission denied (publickey).", "`ssh-copy-id -p 2222 me@ada`"),
        (255, "Received disconnect: Too many authentication failures", "does not let you log in"),
        (255, "WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!", "or has changed. Run `ssh -p 2222 me@ada` yourself"),
        (127, "sh: /venv/bin/python: not found", "ada can't run /venv/bin/python, the Python of this notebook"),
        (
            1,
            "Traceback\nModuleNotFoundError: No module named 'torch'",
            "ada has /venv/bin/python, but not all packages",
        ),
        (1, "", "the agent on ada has ended: exit code 1, without a message"),
    ],
)
def test_errors_say_what_to_do(code: int, output: str, said: str) -> None:
    assert said in ssh.explain("ada", "me@ada:2222", "/venv/bin/python", code, output)
