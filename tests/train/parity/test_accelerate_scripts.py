"""Accelerate's own test scripts, as they are installed, pass with this package under Accelerate's name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from notebook_accel import Accelerator, PartialState, broadcast_object_list
from tests.train.conftest import Cases
from tests.train.parity import mapped

pytestmark = pytest.mark.early

BATCHES = "BatchSampler(RandomSampler(DummyDataset()), 4, False)"
SCRIPTS = {
    "test_script": [
        "init_state_check()",
        "process_execution_check()",
        "test_split_between_processes_list()",
        "test_split_between_processes_nested_dict()",
        "test_split_between_processes_tensor()",
        "test_split_between_processes_evenly()",
        "test_split_between_processes_dataset(Rows)",
        "rng_sync_check()",
        "dl_preparation_check()",
        "central_dl_preparation_check()",
        "custom_sampler_check()",
        "check_seedable_sampler()",
        "check_seedable_sampler_with_data_seed()",
        "check_seedable_sampler_in_batch_sampler_shard()",
        "training_check(use_seedable_sampler=False)",
        "training_check(use_seedable_sampler=True)",
        "test_trigger()",
    ],
    "test_ops": [
        f"{name}(PartialState())"
        for name in (
            "test_gather",
            "test_gather_object",
            "test_gather_non_contiguous",
            "test_broadcast",
            "test_pad_across_processes",
            "test_reduce_sum",
            "test_reduce_mean",
            "test_reduce_max",
            "test_op_checker",
            "test_copy_tensor_to_devices",
        )
    ],
    "test_sync": [
        "test_dataloader_break()",
        "test_distributed_sync(Accelerator())",
        "test_distributed_sync_multiple_fwd(Accelerator())",
        "test_gradient_accumulation_with_opt_and_scheduler()",
        *(
            f"test_gradient_accumulation({split}, {dispatch}, {each})"
            for split in (True, False)
            for dispatch in (True, False)
            for each in (True, False)
        ),
    ],
    "test_distributed_data_loop": [
        "test_default_ensures_even_batch_sizes()",
        "test_can_disable_even_batches()",
        "test_can_join_uneven_inputs()",
        "test_join_can_override_even_batches()",
        "test_join_can_override_for_mixed_type_dataloaders()",
        "test_join_raises_warning_for_iterable_when_overriding_even_batches()",
        "test_pickle_accelerator()",
        *(
            f"test_data_loader(DataLoader(DummyDataset(), {options}), create_accelerator())"
            for options in (
                "shuffle=False, batch_size=4",
                "shuffle=True, batch_size=4, num_workers=1",
                f"batch_sampler={BATCHES}",
                f"sampler={BATCHES}, batch_size=None, collate_fn=default_collate",
            )
        ),
        "test_stateful_dataloader(create_accelerator())",
        "test_stateful_dataloader_save_state(create_accelerator())",
    ],
}
"""Left out is `test_reinstantiated_state`: an Accelerator of ours works on when the shared state is reset."""
CALLS = [(script, call) for script, calls in SCRIPTS.items() for call in calls]


def run(script: str, call: str, folder: str) -> None:
    os.chdir(folder)  # some write files beside them
    module = mapped.script(script)
    assert getattr(module, "Accelerator", PartialState) in (Accelerator, PartialState)
    draw, rank = np.random.default_rng, int(os.environ.get("RANK", "0"))
    # Some data is drawn without a seed; gradients of some data differ by more than a test allows, once in a while.
    same_data = mock.patch.object(np.random, "default_rng", lambda seed=None: draw(rank if seed is None else seed))
    with mapped.names(), same_data:
        eval(call, {**vars(module), "Rows": mapped.Rows})


@pytest.fixture(scope="module")
def on_two(tmp_path_factory: pytest.TempPathFactory) -> Cases:
    folder = str(tmp_path_factory.mktemp("scripts"))
    return Cases({(script, call): (run, script, call, folder) for script, call in CALLS})


@pytest.mark.parametrize(("script", "call"), CALLS)
def test_a_test_of_accelerates_passes_on_two_ranks(script: str, call: str, on_two: Cases) -> None:
    """Long: the ranks of all of them run in one launch, which the first one waits for."""
    assert on_two[script, call] == [None, None]


@pytest.mark.parametrize(
    ("script", "call"),
    [
        *[("test_script", call) for call in SCRIPTS["test_script"] if "in_batch_sampler_shard" not in call],
        ("test_sync", "test_noop_sync(Accelerator())"),
        ("test_ops", "test_gather(PartialState())"),
    ],
)
def test_a_test_of_accelerates_passes_on_one_rank(script: str, call: str, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    monkeypatch.chdir(tmp_path)
    run(script, call, str(tmp_path))


@pytest.mark.parametrize("call", ["test_can_initialize", "test_clean_cuda_fork", "test_static_rdzv_backend"])
def test_a_launch_of_accelerates_tests_works(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_NUM_PROCESSES", "2")
    monkeypatch.setenv("NOTEBOOK_ACCEL_DEVICE", "cpu")
    getattr(mapped.script("test_notebook"), call)()


MERGES = ["safetensors", "command_safetensors", "pytorch", "command_pytorch"]


def merged(folder: str) -> list[str]:
    """What of `test_merge_weights` passes with the weights that two ranks have trained and saved."""
    module, path, passed = mapped.script("test_merge_weights"), Path(folder), []
    with mapped.names():
        model, plugin, accelerator = module.setup()
        model = module.mock_training(accelerator, model)
        module.save_fsdp_model(plugin, accelerator, model, path)
    [weights] = broadcast_object_list([accelerator.get_state_dict(model)])
    whole = module.TinyModel()  # which the script compares with others, as FSDP1 lets it
    whole.load_state_dict(weights)
    for name in MERGES:
        getattr(module, f"test_merge_weights_{name}")(whole, path)
        passed.append(name)
        accelerator.wait_for_everyone()  # the next one writes over these files
    return passed


def test_accelerates_tests_of_merged_weights_pass(ranks: Any, tmp_path: Path) -> None:
    assert ranks(merged, str(tmp_path)) == [MERGES, MERGES]
