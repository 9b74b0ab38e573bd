"""Two notebooks on two machines: network namespaces with a cable between them.

`scripts/test-hosts` runs this.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hosts import host
from tests.hosts.host import Host
from tests.kernel.test_nodes import Pair, expected, launch

pytestmark = pytest.mark.skipif(bool(host.why_not()), reason=host.why_not() or "there are namespaces")


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two kernels that are not started yet, each with the network of a machine."""
    first, second = Host("first"), Host("second")
    try:
        first.join(second)
        found = Pair([["nsenter", f"--net=/proc/{each.pid}/ns/net"] for each in (first, second)])
        try:
            yield found
        finally:
            found.close()
    finally:
        first.close()
        second.close()


def test_machines_with_networks_of_their_own_form_one_group(pair: Pair) -> None:
    """Two kernels start, and the servers of both."""
    nodes = pair.get()
    cells = [launch(nodes[node], node, 29500, address="10.98.0.1") for node in (0, 1)]
    for node, cell in enumerate(cells):
        nodes[node].finish(cell)
        assert cell.error is None, cell.traceback
        assert cell.value == expected(node)
