"""An `Accelerator` on torch_xla's CPU device, against plain torch."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from notebook_accel import notebook_launcher
from notebook_accel.errors import RankError
from tests.tpu import loops


@pytest.fixture(scope="module", autouse=True)
def on_tpu() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NOTEBOOK_ACCEL_DEVICE", "tpu")
        patch.setenv("NOTEBOOK_ACCEL_VIEW", "off")
        yield


def same(found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-4, atol=1e-5)


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {}, "accumulating and clipping": {"steps": 2, "clip": 0.1},
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_training_on_one_device_equals_plain_torch(name: str) -> None:
    losses, weights = loops.by_hand(**OPTIONS[name])
    [(found, state, about)] = notebook_launcher(loops.train, num_processes=1, kwargs=OPTIONS[name])
    assert found == pytest.approx(losses, rel=1e-4)
    same(state, weights)
    assert about == {"device": "xla", "type": "XLA", "rank": (0, 1, 0), "batch": (loops.BATCH, loops.FEATURES)}


@pytest.mark.parametrize("name", OPTIONS)
def test_training_with_spmd_on_four_devices_equals_plain_torch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTEBOOK_ACCEL_STRATEGY", "spmd")
    losses, weights = loops.by_hand(**OPTIONS[name])
    [(found, state, about)] = notebook_launcher(loops.train, kwargs=OPTIONS[name], env={"CPU_NUM_DEVICES": "4"})
    assert found == pytest.approx(losses, rel=1e-4)
    same(state, weights)
    assert about["rank"] == (0, 1, 0)


def test_spmd_spreads_batches_over_all_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    def look() -> Any:
        import torch_xla
        import torch_xla.runtime as xr
        from torch.utils.data import DataLoader

        from notebook_accel import Accelerator

        loader = Accelerator().prepare(DataLoader(torch.zeros(16, 3, 2), batch_size=8))
        batch = next(iter(loader))
        return xr.global_runtime_device_count(), torch_xla._XLAC._get_xla_sharding_spec(batch), tuple(batch.shape)

    monkeypatch.setenv("NOTEBOOK_ACCEL_STRATEGY", "spmd")
    [(devices, sharding, shape)] = notebook_launcher(look, env={"CPU_NUM_DEVICES": "4"})
    assert (devices, shape) == (4, (8, 3, 2))
    assert "devices=[4,1,1]" in sharding


@pytest.mark.parametrize("name", OPTIONS)
def test_training_on_two_ranks_equals_plain_torch_with_collectives_on_the_host(name: str) -> None:
    """Ranks take batches in turn, so that each has half of what plain torch has at once."""
    losses, weights = loops.by_hand(**OPTIONS[name])
    options = {**OPTIONS[name], "batch": loops.BATCH // 2}
    results = notebook_launcher(loops.train_in_host_collectives, num_processes=2, kwargs=options)
    for rank, (found, state, about) in enumerate(results):
        assert found == pytest.approx(losses, rel=1e-4)
        same(state, weights)
        assert about["rank"] == (rank, 2, rank)


def test_what_ranks_exchange_with_collectives_on_the_host(capfd: pytest.CaptureFixture[str]) -> None:
    results = notebook_launcher(loops.exchange, num_processes=2)
    for rank, found in enumerate(results):
        assert found == {
            "gather": [0, 10, 1, 11], "scalar": [0, 1], "tree": {"a": [0, 1]},
            "sum": [1, 21], "mean": [0.5, 10.5], "max": [1, 11],
            "host": "cpu", "padded": 2, "main": rank == 0, "trigger": True,
            "rows": list(range(10)), "objects": list(range(5)),
        }  # fmt: skip
    assert capfd.readouterr().out.count("only once") == 1


def test_bf16_computes_in_bf16_and_keeps_weights_whole() -> None:
    losses, _ = loops.by_hand()
    [(found, state, _)] = notebook_launcher(loops.train, num_processes=1, kwargs={"precision": "bf16"})
    assert found != pytest.approx(losses, rel=1e-6)
    assert found == pytest.approx(losses, rel=0.1)
    assert {weight.dtype for weight in state.values()} == {torch.float32}


def test_a_run_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    [(first, again, files)] = notebook_launcher(loops.save_and_go_on, (str(tmp_path / "state"),), num_processes=1)
    assert first == again
    assert {"model.safetensors", "optimizer.bin", "random_states_0.pkl"} <= set(files)


def test_steps_compile_no_more_than_a_loop_by_hand() -> None:
    [by_hand] = notebook_launcher(loops.count_graphs, ("hand",), num_processes=1)
    [ours] = notebook_launcher(loops.count_graphs, ("us",), num_processes=1)
    assert by_hand["compiled"] >= 1
    assert ours["compiled"] == by_hand["compiled"]
    assert ours["executed"] <= by_hand["executed"] + 1


def test_an_error_in_the_data_ends_the_loop() -> None:
    def read() -> None:
        from torch.utils.data import DataLoader

        from notebook_accel import Accelerator

        class Broken:
            def __len__(self) -> int:
                return 4

            def __getitem__(self, index: int) -> torch.Tensor:
                if index == 3:
                    raise ValueError("no such sample")
                return torch.zeros(2)

        for _ in Accelerator().prepare(DataLoader(Broken(), batch_size=1)):
            pass

    with pytest.raises(RankError, match="no such sample"):
        notebook_launcher(read, num_processes=1)


def test_an_optimizer_follows_its_parameters_and_ties_stay() -> None:
    def tie() -> Any:
        from torch import nn

        from notebook_accel import Accelerator

        net = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
        net["b"].weight = net["a"].weight
        net, optimizer = Accelerator().prepare(net, torch.optim.SGD(net.parameters(), lr=0.1))
        held = {id(each) for group in optimizer.param_groups for each in group["params"]}
        return net["a"].weight is net["b"].weight, held == {id(each) for each in net.parameters()}

    assert notebook_launcher(tie, num_processes=1) == [(True, True)]


@pytest.mark.parametrize(
    ("options", "said"),
    [({"mixed_precision": "fp16"}, "use 'bf16'"), ({"cpu": True}, "launch with device='cpu'")],
)
def test_what_a_tpu_cannot_do_is_refused_in_the_rank(options: dict[str, Any], said: str) -> None:
    def make() -> None:
        from notebook_accel import Accelerator

        Accelerator(**options)

    with pytest.raises(RankError, match=said):
        notebook_launcher(make, num_processes=1)
