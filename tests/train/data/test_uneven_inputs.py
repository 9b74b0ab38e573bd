"""Metrics over every sample once, and loops of uneven length."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from notebook_accel import Accelerator, RankError
from notebook_accel.errors import ConfigurationError
from notebook_accel.train.data import uneven_inputs
from notebook_accel.train.data.prepare import prepare_data_loader, skip_first_batches
from tests.train.conftest import Cases, Ranks
from tests.train.data.loaders import Pair, SizedStream, Stream, numbers, read

LOADERS = {
    "in order": lambda: numbers(11),
    "shuffled": lambda: numbers(11, shuffle=True),
    "one sample": lambda: numbers(1),
    "even": lambda: numbers(16),
    "without the last": lambda: numbers(11, drop_last=True),
    "workers": lambda: numbers(11, num_workers=1),
    "a sampler of some": lambda: DataLoader(torch.arange(100), sampler=range(7), batch_size=4),
    "iterable": lambda: DataLoader(Stream(11), batch_size=4),
    "iterable of known length": lambda: DataLoader(SizedStream(11), batch_size=4),
    "iterable read by workers": lambda: DataLoader(SizedStream(11), batch_size=4, num_workers=1),
}
STRUCTURES = {
    "texts": lambda texts, batch: texts,
    "a tuple of lists": lambda texts, batch: (texts, batch.tolist()),
    "a list of lists": lambda texts, batch: [texts, texts, texts],
    "a dictionary": lambda texts, batch: {"texts": texts, "nested": {"numbers": batch.tolist()}},
    "a mixture": lambda texts, batch: {"texts": texts, "tensor": batch, "array": batch.numpy()},
    "records": lambda texts, batch: [{"text": text} for text in texts],
    "token lists": lambda texts, batch: [[number] * (number % 3 + 1) for number in batch.tolist()],
    "tuples": lambda texts, batch: [(text, 0) for text in texts],
    "a pair": lambda texts, batch: Pair(texts, batch.sum() * 0 + 1),
}
KINDS = {
    "a tensor": (lambda batch: batch, lambda found: found.tolist()),
    "a mapping": (lambda batch: {"a": (batch, batch.float())}, lambda found: found["a"][1].int().tolist()),
    "a named tuple": (lambda batch: Pair(batch, batch), lambda found: found.labels.tolist()),
    "objects": (lambda batch: [str(number) for number in batch.tolist()], lambda found: [int(text) for text in found]),
}


def evaluate(name: str, how: dict[str, Any], kind: str, skipped: int = 0) -> list[int]:
    torch.manual_seed(0)
    make, show = KINDS[kind]
    loader = prepare_data_loader(LOADERS[name](), put_on_device=True, rng_types=["generator"], **how)
    found = []
    for batch in skip_first_batches(loader, skipped):
        found += show(uneven_inputs.gather_for_metrics(make(batch)))
    return found


def everything() -> dict[Any, list[int]]:
    found = {}
    for name in LOADERS:
        for dispatch in (False, True):
            for split in (False, True):
                for skipped in (0, 1):
                    how = {"dispatch_batches": dispatch, "split_batches": split}
                    found[name, dispatch, split, skipped] = evaluate(name, how, "a tensor", skipped)
    for kind in KINDS:
        found[kind] = evaluate("in order", {}, kind)
    return found


def structured() -> dict[str, Any]:
    """What is gathered in the last round of 11 samples on two ranks, three of which are new."""
    found = {}
    for name, make in STRUCTURES.items():
        for batch in prepare_data_loader(numbers(11)):
            found[name] = uneven_inputs.gather_for_metrics(make([str(number) for number in batch.tolist()], batch))
    return found


@pytest.fixture(scope="module")
def on_two() -> Cases:
    return Cases(
        {
            "metrics": (everything,),
            "structures": (structured,),
            "refused": (refused,),
            "together": (together,),
            "objects": (tensors_as_objects,),
            "frozen": (join, True, True),
        }
    )


def test_metrics_keep_their_structure_and_lose_what_is_repeated(on_two: Cases) -> None:
    texts, ids = ["8", "9", "10"], [8, 9, 10]
    for found in on_two["structures"]:
        mixture, pair = found.pop("a mixture"), found.pop("a pair")
        assert found == {
            "texts": texts,
            "a tuple of lists": (texts, ids),
            "a list of lists": [texts, texts, texts],
            "a dictionary": {"texts": texts, "nested": {"numbers": ids}},
            "records": [{"text": text} for text in texts],
            "token lists": [[8, 8, 8], [9], [10, 10]],
            "tuples": [("8", 0), ("9", 0), ("10", 0)],
        }
        assert (mixture["texts"], mixture["tensor"].tolist(), mixture["array"].tolist()) == (texts, ids, ids)
        assert (type(pair), pair.inputs) == (Pair, texts)
        assert pair.labels.tolist() == [1, 1], "a value for a whole batch is one value for each rank"


def together() -> list[Any]:
    """Which steps are due, and what metrics see, of two loaders; the last batch of the first has three new samples."""
    accelerator = Accelerator(gradient_accumulation_steps=3)
    model, short, long = accelerator.prepare(torch.nn.Linear(1, 1), numbers(11), numbers(40))
    found = []
    for batch, _ in zip(short, long, strict=False):
        with accelerator.accumulate(model):
            found.append((accelerator.sync_gradients, accelerator.gather_for_metrics(batch).tolist()))
    return found


def test_loaders_that_are_read_together_end_in_a_step_and_in_metrics_without_repetitions(on_two: Cases) -> None:
    assert on_two["together"] == [[(False, list(range(8))), (True, [8, 9, 10])]] * 2


REFUSED = {
    "a number among lists": (lambda batch: {"ids": batch.tolist(), "loss": 0.5}, r"input_data['loss'] is a float"),
    "a text": (lambda batch: "text", "input_data is a str: put it in a list"),
    "lists that can be read in two ways": (lambda batch: [[1] * 4] * 4, "can't tell whether a list of 4 lists"),
    "other rows": (lambda batch: batch.repeat(2), "has 4 samples on this rank, but input_data has 8 rows"),
    "other entries": (lambda batch: {"texts": ["a"]}, "has 4 samples on this rank, but input_data['texts'] has 1"),
}


def refused() -> dict[str, str]:
    found = {}
    for name, (make, _) in REFUSED.items():
        loader = prepare_data_loader(numbers(11))
        for batch in loader:
            if loader.end_of_dataloader:
                with pytest.raises(ConfigurationError) as error:
                    uneven_inputs.gather_for_metrics(make(batch))
                found[name] = str(error.value)
    return found


@pytest.mark.parametrize("name", REFUSED)
def test_what_metrics_cannot_gather_is_refused_by_name(on_two: Cases, name: str) -> None:
    for found in on_two["refused"]:
        assert REFUSED[name][1] in found[name]


@pytest.mark.smoke
def test_metrics_see_every_sample_once(on_two: Cases) -> None:
    first, second = on_two["metrics"]
    assert first == second
    lengths = {"one sample": 1, "even": 16, "a sampler of some": 7}
    for (name, _dispatch, split, skipped), samples in ((key, value) for key, value in first.items() if len(key) == 4):
        length = lengths.get(name, 8 if name == "without the last" else 11)
        left = max(0, length - skipped * (4 if split else 8))
        if name == "shuffled":
            assert len(set(samples)) == len(samples) == left
        else:
            assert sorted(samples) == list(range(length - left, length))
    for kind in KINDS:
        assert first[kind] == list(range(11))


def test_on_one_process_metrics_are_what_they_are() -> None:
    lengths = {"one sample": 1, "even": 16, "a sampler of some": 7, "without the last": 8}
    for name in LOADERS:
        assert sorted(evaluate(name, {}, "a tensor")) == list(range(lengths.get(name, 11)))
    assert evaluate("in order", {}, "objects") == list(range(11))


def tensors_as_objects() -> list[Any]:
    loader = prepare_data_loader(numbers(5, 2))
    return next(uneven_inputs.gather_for_metrics([batch], use_gather_object=True) for batch in loader)


def test_tensors_of_any_shape_are_gathered_as_objects(on_two: Cases) -> None:
    assert len(on_two["objects"]) == 2
    for found in on_two["objects"]:
        assert [tensor.tolist() for tensor in found] == [[0, 1], [2, 3]]


def unknown() -> tuple[list[int], int]:
    loader = prepare_data_loader(DataLoader(Stream(5), batch_size=2, num_workers=1))
    found: list[int] = []
    for batch in loader:
        found += uneven_inputs.gather_for_metrics(batch).tolist()
    return found, loader.remainder


def test_where_the_length_is_not_known_all_rows_come_and_a_warning(ranks: Ranks, capsys: Any) -> None:
    assert ranks(unknown) == [([0, 1, 2, 3, 4, 0, 1, 2], -1)] * 2
    assert "its last batch may contain repeated samples" in capsys.readouterr().err.lower().replace(
        "the last", "its last"
    )


# Uneven loops


def test_evenness_is_overridden_for_a_while() -> None:
    loader = prepare_data_loader(numbers(11), num_processes=2, process_index=1)
    with uneven_inputs.overriding_even_batches([loader], False):
        assert read(loader) == [[4, 5, 6, 7]]
    assert read(loader) == [[4, 5, 6, 7], [1, 2, 3, 4]]
    with pytest.raises(ZeroDivisionError), uneven_inputs.overriding_even_batches([loader], False):
        1 // 0  # noqa: B018
    assert loader.batch_sampler.even_batches


def test_loaders_that_cannot_change_are_named() -> None:
    loaders = [
        prepare_data_loader(DataLoader(Stream(11), batch_size=4), num_processes=2, process_index=1),
        prepare_data_loader(numbers(11), num_processes=2, process_index=1),
        prepare_data_loader(numbers(11)),
    ]
    with (
        pytest.warns(UserWarning, match="only supported for map-style datasets"),
        uneven_inputs.overriding_even_batches(loaders, False),
    ):
        assert read(loaders[1]) == [[4, 5, 6, 7]]
    with uneven_inputs.overriding_even_batches(loaders[1:], False):
        pass


def join(prepare: bool, frozen: bool) -> int:
    accelerator = Accelerator()
    model = torch.nn.Linear(2, 1).requires_grad_(not frozen)
    if prepare:
        model = accelerator.prepare(model)
    with accelerator.join_uneven_inputs([model]):
        return int(model(torch.ones(accelerator.process_index, 2)).shape[0])


def test_only_prepared_models_can_be_joined(ranks: Ranks, on_two: Cases) -> None:
    with pytest.raises(RankError, match="was given a Linear that is not prepared"):
        ranks(join, False, False)
    assert on_two["frozen"] == [0, 1]  # it has no gradients to wait for
