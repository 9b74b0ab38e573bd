import inspect
import pickle
import sys
from types import ModuleType

import pytest
import torch
from torch import nn

from notebook_accel import Accelerator
from notebook_accel.train.helpers import objects, parallel_models
from notebook_accel.train.helpers.parallel_models import extract_model_from_parallel
from notebook_accel.train.helpers.rank_tqdm import tqdm
from tests.free_ports import free_port
from tests.train.conftest import Ranks


def test_a_model_is_taken_out_of_data_parallel() -> None:
    own = nn.Linear(1, 1)
    assert extract_model_from_parallel(nn.DataParallel(own)) is own
    assert Accelerator(cpu=True).unwrap_model(nn.DataParallel(own)) is own
    outer = nn.Sequential(nn.DataParallel(own))
    assert extract_model_from_parallel(outer, recursive=True)[0] is own  # type: ignore[index]


def test_a_compiled_model_stays_compiled_unless_it_should_not() -> None:
    own = nn.Linear(1, 1)
    compiled = torch.compile(own, backend="eager")
    assert parallel_models.is_compiled_module(compiled)
    assert parallel_models.is_compiled_module(extract_model_from_parallel(compiled))
    assert extract_model_from_parallel(compiled, keep_torch_compile=False) is own


def unwrapped() -> bool:
    accelerator = Accelerator()
    own = nn.Linear(1, 1)
    prepared = accelerator.prepare(own)
    return prepared is not own and extract_model_from_parallel(prepared) is own and prepared._is_accelerate_prepared


def test_a_prepared_model_is_taken_out_of_ddp(ranks: Ranks) -> None:
    assert ranks(unwrapped) == [True, True]


def test_low_precision_is_removed_if_asked() -> None:
    prepared = Accelerator(cpu=True, mixed_precision="bf16").prepare(nn.Linear(1, 1))
    assert extract_model_from_parallel(prepared, keep_fp32_wrapper=False)(torch.ones(1, 1)).dtype == torch.float32
    assert "forward" not in vars(prepared)


def test_a_model_of_peft_is_known_by_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Linear(1, 1)
    assert not parallel_models.is_peft_model(model)
    peft = ModuleType("peft")
    peft.PeftModel = nn.Linear  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "peft", peft)
    assert parallel_models.is_peft_model(nn.DataParallel(model))
    assert not parallel_models.is_peft_model(nn.Identity())


def test_modules_come_after_those_in_them() -> None:
    model = nn.Sequential(nn.Sequential(nn.Identity()), nn.Flatten())
    assert parallel_models.get_module_children_bottom_up(model) == [model[0][0], model[0], model[1], model]
    named = parallel_models.get_module_children_bottom_up(model, return_fqns=True)
    assert [name for name, _ in named] == ["0.0", "0", "1", ""]


def low(x: int) -> dict[str, torch.Tensor]:
    return {"x": torch.full((1,), x, dtype=torch.float16)}


def test_results_are_converted_to_float32() -> None:
    converted = parallel_models.convert_outputs_to_fp32(low)
    assert converted(2)["x"].dtype == torch.float32
    assert inspect.signature(converted) == inspect.signature(low)
    assert pickle.loads(pickle.dumps(converted))(2)["x"].item() == 2


def test_no_parameter_is_sharded_on_one_device() -> None:
    assert not parallel_models.model_has_dtensor(nn.Linear(1, 1))


def test_small_helpers_do_what_accelerates_do() -> None:
    assert objects.recursive_getattr(torch, "nn.functional.relu") is nn.functional.relu
    assert objects.merge_dicts({"a": {"b": 1}}, {"a": {"c": 2}, "d": 3}) == {"a": {"b": 1, "c": 2}, "d": 3}
    assert [objects.get_pretty_name(each) for each in (low, nn.Linear, nn.Identity())] == ["low", "Linear", "Identity"]
    assert [objects.convert_bytes(each) for each in (10, 1536, 2**50 * 3)] == ["10 bytes", "1.5 KB", "3.0 PB"]
    shared = torch.ones(2, 3)
    state = {"a": shared, "b": shared, "c": shared.clone().T}
    clean = objects.clean_state_dict_for_safetensors(state)
    assert [*clean] == [*state] == ["a", "c"]
    assert clean["c"].is_contiguous()


def test_a_port_is_in_use_while_something_listens(unused_tcp_port: int) -> None:
    import socket

    with socket.create_server(("localhost", unused_tcp_port)):
        assert objects.is_port_in_use(unused_tcp_port)
    assert not objects.is_port_in_use(unused_tcp_port)


@pytest.fixture
def unused_tcp_port() -> int:
    return free_port()


def shown() -> list[bool]:
    return [bool(tqdm(range(1)).disable), bool(tqdm(range(1), main_process_only=False).disable)]


def test_a_bar_is_shown_on_the_first_rank_only(ranks: Ranks) -> None:
    assert ranks(shown) == [[False, False], [True, False]]


def test_a_bar_over_a_bool_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="pass main_process_only="):
        tqdm(True, range(3))


@pytest.mark.parametrize(("release", "is_old"), [("5.4.0-1", True), ("4.19", True), ("5.15.0", False), ("10", False)])
def test_an_old_kernel_of_linux_is_warned_of(
    release: str, is_old: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(objects.platform, "release", lambda: release)
    monkeypatch.setattr(objects.platform, "system", lambda: "Linux")
    objects.check_os_kernel()
    said = [f"Linux {release} is older than 5.5, so the ranks may hang: update the system."]
    assert [record.getMessage() for record in caplog.records] == (said if is_old else [])
