import pytest

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.ranks import environment
from notebook_accel.train.ranks.environment import Environment

PLACE = {
    "RANK": "3",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "a",
    "MASTER_PORT": "1",
}


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({}, Environment()),
        (PLACE, Environment(rank=3, local_rank=1, world_size=4, local_world_size=2)),
        ({"NOTEBOOK_ACCEL_DEVICE": "cpu", "NOTEBOOK_ACCEL_BACKEND": "gloo"}, Environment(device="cpu", backend="gloo")),
        ({"ACCELERATE_USE_CPU": "true", "ACCELERATE_DEBUG_MODE": "1"}, Environment(cpu=True, debug=True)),
        ({"ACCELERATE_USE_CPU": "0", "ACCELERATE_MIXED_PRECISION": ""}, Environment()),
        ({"ACCELERATE_MIXED_PRECISION": "bf16"}, Environment(mixed_precision="bf16")),
        ({"ACCELERATE_MIXED_PRECISION": "BF16"}, Environment(mixed_precision="bf16")),
        ({"ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "4"}, Environment(accumulation_steps=4)),
        ({"ACCELERATE_DYNAMO_BACKEND": "INDUCTOR"}, Environment(compile_backend="inductor")),
        ({"ACCELERATE_DYNAMO_BACKEND": "NO"}, Environment()),
        ({"ACCELERATE_TORCH_DEVICE": "cuda:3"}, Environment(torch_device="cuda:3")),
    ],
)
def test_a_rank_reads_the_environment_of_its_launch(environ: dict[str, str], found: Environment) -> None:
    assert environment.read(environ) == found


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE='two' in the environment must be a number"),
        ({"WORLD_SIZE": "2"}, "RANK and MASTER_ADDR and MASTER_PORT is not set"),
        ({"ACCELERATE_MIXED_PRECISION": "fp64"}, "must be one of no, fp16, bf16, fp8"),
        ({"ACCELERATE_USE_CPU": "maybe"}, "must be true or false"),
        ({"ACCELERATE_USE_DEEPSPEED": "true"}, "DeepSpeed's ZeRO runs as FSDP2 here"),
        ({"ACCELERATE_USE_MEGATRON_LM": "true"}, "Megatron-LM is not available here"),
    ],
)
def test_what_means_nothing_is_refused(environ: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        environment.read(environ)
    assert message in str(refused.value)
