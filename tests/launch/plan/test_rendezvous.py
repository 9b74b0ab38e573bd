import os
import socket
from collections.abc import Iterator

import pytest

from notebook_accel.config import LaunchConfig
from notebook_accel.errors import LaunchError
from notebook_accel.launch.engines.contract import Rendezvous
from notebook_accel.launch.plan.rendezvous import open_rendezvous


@pytest.fixture
def met() -> Iterator[list[Rendezvous]]:
    """Meetings to close."""
    opened: list[Rendezvous] = []
    yield opened
    for rendezvous in opened:
        if rendezvous.listener is not None:
            rendezvous.listener.close()


def test_ranks_meet_on_a_free_port_of_the_loopback(met: list[Rendezvous]) -> None:
    met += [open_rendezvous(LaunchConfig(), attempt) for attempt in range(3)]
    assert len({rendezvous.port for rendezvous in met}) == 3
    for attempt, rendezvous in enumerate(met):
        assert rendezvous.listener is not None
        assert rendezvous.listener.getsockname() == ("127.0.0.1", rendezvous.port)
        assert (rendezvous.host, rendezvous.attempt, rendezvous.num_nodes) == ("127.0.0.1", attempt, 1)
        socket.create_connection(("127.0.0.1", rendezvous.port)).close()  # it listens already


def test_the_port_that_was_asked_for_is_taken(met: list[Rendezvous]) -> None:
    met.append(open_rendezvous(LaunchConfig(), 0))
    port = met[0].port
    with pytest.raises(LaunchError, match=f"127.0.0.1:{port}: another program uses it; choose another use_port, or 0"):
        open_rendezvous(LaunchConfig(port=port), 0)
    listener = met.pop().listener
    assert listener is not None
    listener.close()
    met.append(open_rendezvous(LaunchConfig(port=port), 0))
    assert met[0].port == port


def test_a_port_that_was_just_used_can_be_used_again(met: list[Rendezvous]) -> None:
    first = open_rendezvous(LaunchConfig(), 0)
    assert first.listener is not None
    with socket.create_connection((first.host, first.port)), first.listener:
        first.listener.accept()[0].close()  # closed from this side, so the connection lingers here
    met.append(open_rendezvous(LaunchConfig(port=first.port), 1))


@pytest.mark.parametrize("host", ["localhost", "::1", "127.0.0.1"])
def test_one_machine_meets_on_the_loopback_by_whatever_name(host: str, met: list[Rendezvous]) -> None:
    met.append(open_rendezvous(LaunchConfig(master_addr=host), 0))
    assert met[0].host == "127.0.0.1"


def test_a_name_that_is_no_address_here_is_explained() -> None:
    with pytest.raises(LaunchError, match="not an address of this machine; master_addr must be that of the machine"):
        open_rendezvous(LaunchConfig(master_addr="192.0.2.1", num_nodes=2), 0)  # an address that is never in use


def test_the_second_machine_listens_to_nothing() -> None:
    config = LaunchConfig(master_addr="192.0.2.1", num_nodes=2, node_rank=1, run_id="x", join_timeout=5)
    before = os.listdir("/dev/fd")
    rendezvous = open_rendezvous(config, 0)
    assert rendezvous == Rendezvous(
        host="192.0.2.1", port=29500, listener=None, node_rank=1, num_nodes=2, run_id="x", join_timeout=5
    )
    assert os.listdir("/dev/fd") == before


def test_several_machines_meet_on_the_port_that_all_know(met: list[Rendezvous]) -> None:
    met.append(open_rendezvous(LaunchConfig(), 0))
    free = met[0].port
    met[0].listener.close()
    met[0] = open_rendezvous(LaunchConfig(num_nodes=2, port=free), 0)
    assert met[0].port == free
