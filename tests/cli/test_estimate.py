"""The estimate of memory, by hand and beside what torch holds."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from notebook_accel.cli import estimate
from notebook_accel.cli.estimate import GIB, Model, measure
from notebook_accel.cli.main import main
from notebook_accel.errors import ConfigurationError
from notebook_accel.train.models import meta

MODEL = Model("m", parameters=1000, trained=800, buffers=12, largest_layer=100, activations={"no": 60, "bf16": 30})
STACK = "tests.cli.models:stack"


@pytest.mark.parametrize(
    ("strategy", "ranks", "precision", "optimizer", "weights", "gradients", "states", "activations"),
    [
        ("single", 1, "no", "adam", 4000 + 12, 3200, 6400, 60),
        ("single", 1, "bf16", "sgd", 4000 + 2000 + 12, 3200, 0, 30),
        ("ddp", 4, "no", "momentum", 4000 + 12, 6400, 3200, 60),
        ("fsdp", 4, "no", "adam", 1000 + 2 * 400 + 12, 800 + 400, 1600, 60),
        ("fsdp", 4, "bf16", "adam", 1000 + 2 * 200 + 12, 800 + 200, 1600, 30),
    ],
)
def test_an_estimate_is_the_formula(
    strategy: str,
    ranks: int,
    precision: str,
    optimizer: str,
    weights: int,
    gradients: int,
    states: int,
    activations: int,
) -> None:
    found = estimate.estimate(MODEL, strategy, ranks, precision, optimizer)
    assert (found.weights, found.gradients, found.optimizer, found.activations) == (
        weights,
        gradients,
        states,
        activations,
    )
    assert found.total == weights + gradients + states + activations + estimate.OVERHEAD


def test_a_gpu_fits_what_leaves_room_for_fragments() -> None:
    found = estimate.estimate(MODEL, "single", 1, "no", "adam")
    assert estimate.fitting(found, [("small", found.total), ("large", found.total * 1.06)]) == ["large"]


def test_activations_are_what_autograd_keeps() -> None:
    """Two linear layers keep their inputs; the first one's is the caller's."""
    model = meta.build(STACK, {"width": 64, "layers": 2})
    given = meta.inputs(["5,8"])
    assert meta.activations(model, given, {}) == 2 * 5 * 64 * 4
    with meta.in_half(model, given) as halves:
        assert meta.activations(model, halves, {}) == 2 * 5 * 64 * 2


def test_attention_keeps_what_fused_kernels_keep() -> None:
    """Its three inputs, its output, and a float32 for each row: no square of the length."""
    model = meta.build("tests.cli.models:Attention")
    given = meta.inputs(["2,4,512,64"])
    given[0].requires_grad_()
    assert meta.activations(model, given, {}) == (4 * 64 + 1) * 2 * 4 * 512 * 4


def test_a_model_of_tera_bytes_is_measured_on_any_machine() -> None:
    found = measure(STACK, {"width": 2**17, "layers": 20}, (), 1, 1)
    assert found.parameters > 3 * 10**11
    assert found.largest_layer == 2**34 + 2**17
    assert found.activations is None


def test_what_is_not_trained_has_no_gradients() -> None:
    found = measure("tests.cli.models:Frozen", {}, (), 1, 1)
    assert (found.parameters, found.trained, found.buffers) == (300, 100, 400)


def test_the_estimate_is_what_a_real_model_holds() -> None:
    found = measure(STACK, {}, (), 1, 1)
    model = meta.build(STACK).to_empty(device="cpu")
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    estimated = estimate.estimate(found, "single", 1, "no", "adam")
    assert sum(each.nbytes for each in model.parameters()) == estimated.weights
    assert sum(each.grad.nbytes for each in model.parameters() if each.grad is not None) == estimated.gradients
    moments = [each for state in optimizer.state.values() for each in state.values() if each.dim()]
    assert sum(each.nbytes for each in moments) == estimated.optimizer


def test_the_command_shows_every_way_of_training() -> None:
    result = CliRunner().invoke(main, ["estimate-memory", STACK, "--input", "4,8", "--num-processes", "4"])
    assert result.exit_code == 0, result.output
    for way in ("one GPU", "DDP on 4", "FSDP on 4"):
        assert result.output.count(f"\n{way} ") == 2


def test_the_command_gives_bytes_to_programs() -> None:
    arguments = ["estimate-memory", STACK, "--arguments", '{"layers": 1}', "--num_processes", "1", "--json"]
    found: dict[str, Any] = json.loads(CliRunner().invoke(main, arguments).output)
    assert found["model"]["parameters"] == 9 * 64 + 65 * 64
    assert [each["strategy"] for each in found["estimates"]] == ["single", "single"]
    assert "T4" in found["estimates"][0]["fits"]
    assert found["estimates"][0]["total"] < GIB


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("stack", {}, "write package.module:function_or_class"),
        (":stack", {}, "write package.module:function_or_class"),
        (".models:stack", {}, "write package.module:function_or_class"),
        ("tests.cli.models:heap", {}, "has no attribute 'heap'"),
        ("no.such:thing", {}, "cannot be imported"),
        ("tests.cli.models:COUNT", {}, "give a function or class"),
        ("tests.cli.models:number", {}, "returned a int, not a torch.nn.Module"),
        (STACK, {"depth": 1}, "unexpected keyword argument 'depth'"),
    ],
)
def test_what_is_no_model_is_refused(name: str, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        meta.build(name, arguments)


def test_a_folder_needs_transformers(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read as the configuration of a model"):
        meta.build(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(ConfigurationError, match="pip install transformers"):
        meta.build(str(tmp_path))


@pytest.mark.parametrize("text", ["4,x", "4:float7", ""])
def test_an_input_that_is_no_shape_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="write the shape"):
        meta.inputs([text])


def test_inputs_that_the_model_does_not_take_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="cannot compute with these inputs"):
        measure(STACK, {}, ("4,9",), 1, 1)
