import psutil
import pytest

from notebook_accel.launch.engines.contract import Rendezvous
from notebook_accel.launch.engines.load_time import load_time
from notebook_accel.launch.plan import environment as environments
from notebook_accel.launch.plan.plan import Plan
from tests.launch.plan.test_plan import machine, make

HERE = Rendezvous(host="127.0.0.1", port=4321, listener=None)


def environment(made: Plan, rank: int = 0, rendezvous: Rendezvous = HERE, **environ: str) -> dict[str, str]:
    return environments.of_ranks(made, rendezvous, environ)[rank]


def test_each_rank_knows_its_place() -> None:
    made = make(machine(), num_processes=3, run_id="run", max_restarts=2)
    ranks = environments.of_ranks(
        made, Rendezvous(host="127.0.0.1", port=4321, listener=None, attempt=1), {"HOME": "/here"}
    )
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
    rendezvous = Rendezvous(host="10.0.0.1", port=29500, listener=None, node_rank=1, num_nodes=2)
    ranks = environments.of_ranks(made, rendezvous, {})
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
    ranks = environments.of_ranks(made, HERE, {"CUDA_VISIBLE_DEVICES": "whatever"})
    assert {rank["CUDA_VISIBLE_DEVICES"] for rank in ranks} == {told}
    assert {rank["CUDA_DEVICE_ORDER"] for rank in ranks} == {"PCI_BUS_ID"}


def test_gpus_that_nobody_chose_are_left_as_they_are() -> None:
    told = environment(make(machine(4), num_processes=2), CUDA_VISIBLE_DEVICES="3,2,1,0")
    assert told["CUDA_VISIBLE_DEVICES"] == "3,2,1,0"
    assert "CUDA_VISIBLE_DEVICES" not in environment(make(machine(4)))
    assert "ACCELERATE_USE_CPU" not in environment(make(machine(4)))


def test_the_device_is_the_one_that_was_asked_for() -> None:
    told = environment(make(machine(1), device="cuda"), ACCELERATE_USE_CPU="true")
    assert told["ACCELERATE_USE_CPU"] == "false"


def test_ranks_are_told_how_to_train() -> None:
    told = environment(make(machine(), strategy="fsdp", gradient_accumulation_steps=4))
    assert (told["ACCELERATE_USE_FSDP"], told["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"]) == ("true", "4")


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


@pytest.mark.parametrize("environ", [{}, {"TORCH_FR_BUFFER_SIZE": "10"}, {"TORCH_LOGS": "dynamo"}])
def test_ranks_can_be_forked_from_the_server_that_was_started_before_their_launch(environ: dict[str, str]) -> None:
    made = make(machine(), num_processes=2, env={"LEARNING_RATE": "0.1"})
    assert load_time(environment(made, **environ)) == load_time(environ)


def test_the_environment_of_the_notebook_is_not_changed() -> None:
    environ = {"A": "b"}
    environments.of_ranks(make(machine()), HERE, environ)
    assert environ == {"A": "b"}
