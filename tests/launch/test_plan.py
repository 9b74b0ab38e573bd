import os
import socket
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from notebook_accel.config import LaunchConfig
from notebook_accel.config.settings import Source
from notebook_accel.errors import ConfigurationError, HardwareError, LaunchError
from notebook_accel.hardware import FixedProbe, Gpu, Hardware, detect
from notebook_accel.launch import engines, plan
from notebook_accel.launch.engines.base import Machines, Meeting
from notebook_accel.launch.plan import Plan

FORKSERVER, INPROCESS = engines.get("forkserver"), engines.get("inprocess")


def machine(gpus: int = 0, *, visible: str | None = None, cores: int = 16, mps: bool = False) -> Hardware:
    probe = FixedProbe([Gpu("H200", f"GPU-{index}", 2**37) for index in range(gpus)])
    found = detect({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}, probe)
    return Hardware(found.gpus, found.cuda_ids, found.hidden_gpus, mps, cores)


def make(hardware: Hardware, *, engine: Any = FORKSERVER, **given: Any) -> Plan:
    return plan.make(LaunchConfig(**given), hardware, engine)


# Where the ranks run


@pytest.mark.parametrize(
    ("hardware", "given", "size", "device", "backend"),
    [
        (machine(4), {}, 4, "cuda", "nccl"),
        (machine(4), {"num_processes": 2}, 2, "cuda", "nccl"),
        (machine(4, visible="3,1"), {}, 2, "cuda", "nccl"),
        (machine(4), {"device": "cpu"}, 4, "cpu", "gloo"),
        (machine(4), {"device": "cpu", "num_processes": 7}, 7, "cpu", "gloo"),
        (machine(1), {"gpus": (0, 0)}, 2, "cuda", "gloo"),
        (machine(4), {"gpus": (2, 3)}, 2, "cuda", "nccl"),
        (machine(4), {"gpus": (2, 3), "num_processes": 2}, 2, "cuda", "nccl"),
        (machine(4), {"gpus": (0, 1, 0, 1)}, 4, "cuda", "gloo"),
        (machine(4), {"mixed_precision": "fp16"}, 4, "cuda", "nccl"),
        (machine(mps=True), {}, 1, "mps", "gloo"),
        (machine(mps=True), {"device": "cpu", "num_processes": 2}, 2, "cpu", "gloo"),
        (machine(cores=16), {}, 4, "cpu", "gloo"),
        (machine(cores=2), {}, 2, "cpu", "gloo"),
        (machine(cores=1), {"num_processes": 3}, 3, "cpu", "gloo"),
        (machine(), {"mixed_precision": "bf16"}, 4, "cpu", "gloo"),
    ],
    ids=lambda value: "" if isinstance(value, Hardware) else str(value),
)
def test_ranks_go_where_they_fit(
    hardware: Hardware, given: dict[str, Any], size: int, device: str, backend: str
) -> None:
    made = make(hardware, **given)
    assert (made.size, made.device, made.backend) == (size, device, backend)


@pytest.mark.parametrize(
    ("hardware", "given", "message"),
    [
        (
            machine(2),
            {"num_processes": 4},
            "asked for 4 GPUs, found 2: pass num_processes=2, gpus=[0, 1, 0, 1] to share them, or device='cpu'",
        ),
        (machine(1), {"num_processes": 2}, "asked for 2 GPUs, found 1"),
        (machine(4, visible="0"), {"num_processes": 2}, "asked for 2 GPUs, found 1"),
        (machine(2), {"gpus": (0, 2)}, "asked for GPU 2, found 2 (numbered from 0)"),
        (machine(), {"device": "cuda"}, "torch can use none here. Pass device='cpu'"),
        (machine(), {"gpus": (0,)}, "torch can use none here. Pass device='cpu'"),
        (
            machine(2, visible=""),
            {"device": "cuda"},
            "none here: CUDA_VISIBLE_DEVICES='' hides them. Pass device='cpu'",
        ),
        (machine(), {"device": "mps"}, "no Apple GPU"),
    ],
    ids=lambda value: "" if isinstance(value, Hardware) else str(value)[:40],
)
def test_a_device_that_is_not_there_is_missed(hardware: Hardware, given: dict[str, Any], message: str) -> None:
    with pytest.raises(HardwareError) as refused:
        make(hardware, **given)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("hardware", "given", "message"),
    [
        (machine(), {"mixed_precision": "fp16"}, "mixed_precision='fp16' needs a GPU"),
        (machine(), {"mixed_precision": "fp8"}, "use 'bf16' or 'no'"),
        (machine(4), {"mixed_precision": "fp16", "device": "cpu"}, "these ranks run on the CPU"),
        (machine(4), {"gpus": (0, 1), "num_processes": 3}, "gpus=[0, 1] names 2 GPUs for num_processes=3 ranks"),
        (machine(4), {"gpus": (0, 0, 1, 1)}, "write gpus=[0, 1, 0, 1]"),
        (machine(4), {"gpus": (0, 1, 0, 0)}, "write gpus=[0, 1, 0, 1]"),
        (machine(mps=True), {"num_processes": 2}, "pass num_processes=1, or device='cpu' for more"),
        (machine(), {"num_processes": 2, "engine": INPROCESS}, "runs at most 1 rank, not 2: pass num_processes=1"),
    ],
    ids=lambda value: "" if isinstance(value, Hardware) else str(value)[:40],
)
def test_settings_that_contradict_the_hardware_are_refused(
    hardware: Hardware, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        make(hardware, **given)
    assert message in str(refused.value)


def test_the_advice_for_too_few_gpus_works() -> None:
    assert make(machine(2), gpus=(0, 1, 0, 1)).size == 4


@pytest.mark.parametrize(
    ("hardware", "given", "notice"),
    [
        (
            machine(cores=3),
            {},
            "no accelerator found: launching on 3 processes of the CPU (num_processes sets the number)",
        ),
        (
            machine(cores=1),
            {},
            "no accelerator found: launching on 1 process of the CPU (num_processes sets the number)",
        ),
        (machine(4), {"device": "cpu"}, "device='cpu': launching on 4 processes"),
        (machine(2, visible=""), {}, "GPUs found, but CUDA_VISIBLE_DEVICES='' hides them: launching on 4 processes"),
        (machine(), {"engine": INPROCESS}, "launching on 1 process of the CPU"),
        (machine(), {"num_processes": 2}, None),
        (machine(4), {}, None),
        (machine(mps=True), {}, None),
    ],
    ids=lambda value: "" if isinstance(value, Hardware) else str(value)[:40],
)
def test_a_number_that_was_chosen_for_the_user_is_told(
    hardware: Hardware, given: dict[str, Any], notice: str | None
) -> None:
    made = make(hardware, **given).notice
    assert made.startswith(notice) or notice in made if notice else made == ""


# What each rank is told

HERE = Meeting(host="127.0.0.1", port=4321, listener=None)


def environment(made: Plan, rank: int = 0, meeting: Meeting = HERE, **environ: str) -> dict[str, str]:
    return plan.environments(made, meeting, environ)[rank]


def test_each_rank_knows_its_place() -> None:
    made = make(machine(), num_processes=3, run_id="run", max_restarts=2)
    ranks = plan.environments(made, Meeting(host="127.0.0.1", port=4321, listener=None, attempt=1), {"HOME": "/here"})
    assert [rank["RANK"] for rank in ranks] == ["0", "1", "2"]
    assert [rank["LOCAL_RANK"] for rank in ranks] == ["0", "1", "2"]
    assert [rank["ROLE_RANK"] for rank in ranks] == ["0", "1", "2"]
    for rank in ranks:
        assert (
            rank
            | {
                "HOME": "/here",
                "WORLD_SIZE": "3",
                "LOCAL_WORLD_SIZE": "3",
                "GROUP_RANK": "0",
                "GROUP_WORLD_SIZE": "1",
                "ROLE_NAME": "default",
                "ROLE_WORLD_SIZE": "3",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": "4321",
                "TORCHELASTIC_RUN_ID": "run",
                "TORCHELASTIC_RESTART_COUNT": "1",
                "TORCHELASTIC_MAX_RESTARTS": "2",
                "TORCHELASTIC_USE_AGENT_STORE": "True",
                "ACCELERATE_MIXED_PRECISION": "no",
                "ACCELERATE_USE_CPU": "true",
                "CUDA_VISIBLE_DEVICES": "",
            }
            == rank
        )


def test_ranks_of_the_second_machine_come_after_those_of_the_first() -> None:
    made = make(machine(), num_processes=3, num_nodes=2, node_rank=1, master_addr="10.0.0.1")
    meeting = Meeting(host="10.0.0.1", port=29500, listener=None, node_rank=1, num_nodes=2)
    ranks = plan.environments(made, meeting, {})
    assert [rank["RANK"] for rank in ranks] == ["3", "4", "5"]
    assert [rank["LOCAL_RANK"] for rank in ranks] == ["0", "1", "2"]
    assert {(rank["WORLD_SIZE"], rank["LOCAL_WORLD_SIZE"]) for rank in ranks} == {("6", "3")}
    assert {(rank["GROUP_RANK"], rank["GROUP_WORLD_SIZE"]) for rank in ranks} == {("1", "2")}
    assert {(rank["MASTER_ADDR"], rank["MASTER_PORT"]) for rank in ranks} == {("10.0.0.1", "29500")}


@pytest.mark.parametrize(
    ("visible", "gpus", "told"),
    [
        (None, (2, 3), "2,3"),
        (None, (3, 1), "3,1"),
        ("4,5,6,7", (2, 3), "6,7"),
        ("GPU-5,GPU-1", (1,), "GPU-1"),
        ("7,3", (0, 1, 0, 1), "7,3"),
        (None, (1, 1), "1"),
    ],
)
def test_gpus_are_those_that_the_notebook_sees(visible: str | None, gpus: tuple[int, ...], told: str) -> None:
    made = make(machine(8, visible=visible), gpus=gpus)
    ranks = plan.environments(made, HERE, {"CUDA_VISIBLE_DEVICES": "whatever"})
    assert {rank["CUDA_VISIBLE_DEVICES"] for rank in ranks} == {told}
    assert {rank["CUDA_DEVICE_ORDER"] for rank in ranks} == {"PCI_BUS_ID"}


def test_gpus_that_nobody_chose_are_left_as_they_are() -> None:
    told = environment(make(machine(4), num_processes=2), CUDA_VISIBLE_DEVICES="3,2,1,0")
    assert told["CUDA_VISIBLE_DEVICES"] == "3,2,1,0"
    assert "CUDA_VISIBLE_DEVICES" not in environment(make(machine(4)))
    assert "ACCELERATE_USE_CPU" not in environment(make(machine(4)))


def test_the_device_is_the_one_that_was_asked_for() -> None:
    assert "ACCELERATE_USE_CPU" not in environment(make(machine(1), device="cuda"), ACCELERATE_USE_CPU="true")


def test_ranks_are_told_how_to_train() -> None:
    told = environment(make(machine(), strategy="fsdp", gradient_accumulation_steps=4))
    assert (told["ACCELERATE_USE_FSDP"], told["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"]) == ("true", "4")


def test_a_setting_that_cannot_work_here_is_named_with_its_source() -> None:
    source = Source("file", "gpu_ids in config.yaml")
    with pytest.raises(HardwareError, match=r"asked for GPU 5 \(from gpu_ids in config.yaml\), found 2"):
        make(machine(2), gpus=(5,), sources={"gpus": source})
    with pytest.raises(ConfigurationError, match="rdzv_backend='c10d' is not available"):
        make(machine(), num_nodes=2, master_addr="10.0.0.1", rdzv_backend="c10d")


@pytest.mark.parametrize(
    ("asked", "environ", "told"),
    [
        ("no", {}, "no"),
        ("bf16", {}, "bf16"),
        ("no", {"ACCELERATE_MIXED_PRECISION": "bf16"}, "no"),
        ("fp16", {"ACCELERATE_MIXED_PRECISION": "bf16"}, "fp16"),
    ],
)
def test_the_precision_is_the_one_that_was_asked_for(asked: str, environ: dict[str, str], told: str) -> None:
    assert environment(make(machine(1), mixed_precision=asked), **environ)["ACCELERATE_MIXED_PRECISION"] == told


@pytest.mark.parametrize(
    ("cores", "size", "environ", "threads"),
    [
        (16, 4, {}, "4"),
        (16, 3, {}, "5"),
        (2, 4, {}, "1"),
        (16, 4, {"OMP_NUM_THREADS": "2"}, "2"),
        (16, 4, {"OMP_NUM_THREADS": "2,1"}, "2,1"),  # one for each level of nesting
    ],
)
def test_ranks_share_the_cores_unless_the_user_says_more(
    cores: int, size: int, environ: dict[str, str], threads: str
) -> None:
    made = make(machine(cores=cores), num_processes=size)
    assert environment(made, **environ)["OMP_NUM_THREADS"] == threads
    made = make(machine(cores=cores), num_processes=size, env={"OMP_NUM_THREADS": "7"})
    assert environment(made, **environ)["OMP_NUM_THREADS"] == "7"


def test_the_users_variables_win_over_ours_and_a_ranks_place_over_both() -> None:
    made = make(machine(), num_processes=1, env={"NCCL_DEBUG": "INFO", "MASTER_PORT": "1", "RANK": "9"})
    told = environment(made, NCCL_DEBUG="WARN", RANK="8")
    assert (told["NCCL_DEBUG"], told["MASTER_PORT"], told["RANK"]) == ("INFO", "1", "0")


def test_ranks_of_one_machine_talk_on_the_loopback() -> None:
    told = environment(make(machine()))
    loopback = told["GLOO_SOCKET_IFNAME"]
    assert told["NCCL_SOCKET_IFNAME"] == loopback
    assert "127.0.0.1" in [address.address for address in psutil.net_if_addrs()[loopback]]
    assert environment(make(machine()), GLOO_SOCKET_IFNAME="eth7")["GLOO_SOCKET_IFNAME"] == "eth7"


def test_the_environment_of_the_notebook_is_not_changed() -> None:
    environ = {"A": "b"}
    plan.environments(make(machine()), HERE, environ)
    assert environ == {"A": "b"}


@pytest.mark.parametrize(
    ("given", "rank", "label"),
    [
        ({"num_processes": 2}, 1, "[1] "),
        ({"num_processes": 8}, "0-3", "[0-3] "),
        ({"num_processes": 1}, 0, ""),
        ({"num_processes": 2, "label": ""}, 0, ""),
        ({"num_processes": 1, "num_nodes": 2}, 0, "[0] "),
        ({"num_processes": 2, "label": "${role_name}:$rank/$local_rank"}, 1, "default:1/1 "),
        ({"num_processes": 2, "num_nodes": 2, "node_rank": 1, "label": "$rank/$local_rank"}, 3, "3/1 "),
    ],
)
def test_lines_are_labelled(given: dict[str, Any], rank: int | str, label: str) -> None:
    assert make(machine(), **given).label(rank) == label


def test_several_ranks_of_the_second_machine_are_labelled_with_their_places_there() -> None:
    made = make(machine(), num_processes=2, num_nodes=2, node_rank=1, label="$rank/$local_rank")
    assert made.label("2-3") == "2-3/0-1 "


def test_ranks_of_a_cluster_are_labelled_with_their_places_on_each_machine() -> None:
    config = LaunchConfig(label="$rank/$local_rank", num_nodes=2, cluster="auto")
    made = Plan(
        config=config,
        size=6,
        device="cpu",
        backend="gloo",
        engine="cluster",
        visible_gpus=None,
        threads=1,
        machines=Machines(2, cpus=3),
    )
    assert [made.label(rank) for rank in (0, 4, "0-5", "2-3", "1,4")] == [
        "0/0 ",
        "4/1 ",
        "0-5/0-2 ",
        "2-3/0,2 ",
        "1,4/1 ",
    ]


# Where they meet


@pytest.fixture
def met() -> Iterator[list[Meeting]]:
    """Meetings to close."""
    opened: list[Meeting] = []
    yield opened
    for meeting in opened:
        if meeting.listener is not None:
            meeting.listener.close()


def test_ranks_meet_on_a_free_port_of_the_loopback(met: list[Meeting]) -> None:
    met += [plan.meet(LaunchConfig(), attempt) for attempt in range(3)]
    assert len({meeting.port for meeting in met}) == 3
    for attempt, meeting in enumerate(met):
        assert meeting.listener is not None
        assert meeting.listener.getsockname() == ("127.0.0.1", meeting.port)
        assert (meeting.host, meeting.attempt, meeting.num_nodes) == ("127.0.0.1", attempt, 1)
        socket.create_connection(("127.0.0.1", meeting.port)).close()  # it listens already


def test_the_port_that_was_asked_for_is_taken(met: list[Meeting]) -> None:
    met.append(plan.meet(LaunchConfig(), 0))
    port = met[0].port
    with pytest.raises(LaunchError, match=f"127.0.0.1:{port}: another program uses it; choose another use_port, or 0"):
        plan.meet(LaunchConfig(port=port), 0)
    listener = met.pop().listener
    assert listener is not None
    listener.close()
    met.append(plan.meet(LaunchConfig(port=port), 0))
    assert met[0].port == port


def test_a_port_that_was_just_used_can_be_used_again(met: list[Meeting]) -> None:
    first = plan.meet(LaunchConfig(), 0)
    assert first.listener is not None
    with socket.create_connection((first.host, first.port)), first.listener:
        first.listener.accept()[0].close()  # closed from this side, so the connection lingers here
    met.append(plan.meet(LaunchConfig(port=first.port), 1))


@pytest.mark.parametrize("host", ["localhost", "::1", "127.0.0.1"])
def test_one_machine_meets_on_the_loopback_by_whatever_name(host: str, met: list[Meeting]) -> None:
    met.append(plan.meet(LaunchConfig(master_addr=host), 0))
    assert met[0].host == "127.0.0.1"


def test_a_name_that_is_no_address_here_is_explained() -> None:
    with pytest.raises(LaunchError, match="no address of this machine; the machine with node_rank=0 is the one"):
        plan.meet(LaunchConfig(master_addr="192.0.2.1", num_nodes=2), 0)  # an address for documentation, never in use


def test_the_second_machine_listens_to_nothing() -> None:
    config = LaunchConfig(master_addr="192.0.2.1", num_nodes=2, node_rank=1, run_id="x", join_timeout=5)
    before = os.listdir("/dev/fd")
    meeting = plan.meet(config, 0)
    assert meeting == Meeting(
        host="192.0.2.1", port=29500, listener=None, node_rank=1, num_nodes=2, run_id="x", join_timeout=5
    )
    assert os.listdir("/dev/fd") == before


def test_several_machines_meet_on_the_port_that_all_know(met: list[Meeting]) -> None:
    met.append(plan.meet(LaunchConfig(), 0))
    free = met[0].port
    met[0].listener.close()
    met[0] = plan.meet(LaunchConfig(num_nodes=2, port=free), 0)
    assert met[0].port == free
