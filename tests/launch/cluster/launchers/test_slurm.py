"""What Slurm's commands say."""

import pytest

from notebook_accel.launch.cluster.launchers import slurm
from notebook_accel.launch.engines.contract import NodeInfo, NodeRequest


def test_machines_that_can_be_used_are_found_once() -> None:
    said = "ada|10.0.0.1|64|gpu:a100:4(S:0-1)|idle\nada|10.0.0.1|64|gpu:a100:4(S:0-1)|idle\nbob|bob|8|(null)|mix-\n"
    assert slurm.parse(f"{said}eve|eve|8|(null)|down*\ndan|dan|8|(null)|drain\n") == {
        "ada": NodeInfo("ada", "10.0.0.1", 64, 4),
        "bob": NodeInfo("bob", "bob", 8, 0),
    }


@pytest.mark.parametrize(
    ("resources", "gpus"),
    [("(null)", 0), ("gpu:2", 2), ("gpu:a100:4,gpu:v100:2(S:1)", 6), ("mps:100", 0), ("shard:8,gpu:h100_80gb:1", 1)],
)
def test_gpus_of_every_kind_are_counted(resources: str, gpus: int) -> None:
    assert slurm.parse(f"ada|ada|8|{resources}|alloc")["ada"].gpus == gpus


@pytest.mark.parametrize(("text", "each"), [("", []), ("4", [4]), ("4(x2),8", [4, 4, 8])])
def test_the_cpus_of_an_allocation_are_told_by_machine(text: str, each: list[int]) -> None:
    assert slurm.per_node(text) == each


def test_slurm_is_told_which_machines_not_to_use() -> None:
    assert not any("--exclude" in word for word in slurm.command(NodeRequest(2, cpus=1)))
    assert "--exclude=ada,bob" in slurm.command(NodeRequest(2, cpus=1, excluded=("ada", "bob")))
