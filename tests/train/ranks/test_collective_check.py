"""Debug mode: ranks compare their calls before each collective, and what differs is an error on all of them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist

from notebook_accel import (
    Accelerator,
    DistributedOperationException,
    PartialState,
    broadcast,
    broadcast_object_list,
    gather,
    gather_object,
    pad_across_processes,
    reduce,
)
from notebook_accel.train.checkpoints import participants
from notebook_accel.train.ranks import process_group
from tests.train.conftest import Cases, launch

pytestmark = pytest.mark.early


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class Batch:
    inputs: Any
    targets: Any


def rank() -> int:
    return PartialState().process_index


def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


def gather_shapes() -> None:
    gather({"loss": zeros(2), "logits": (zeros(1), [zeros(4 - rank(), 10)])})


def gather_types() -> None:
    gather(Pair(zeros(2), zeros(2, dtype=torch.int64 if rank() else torch.float32)))


def gather_structures() -> None:
    gather({"loss": zeros(2), **({} if rank() else {"mask": [zeros(1), zeros(1)]})})


def gather_nodes() -> None:
    gather(Batch(zeros(2), [zeros(1)] if rank() else (zeros(1),)))


def gather_orders() -> None:
    gather({name: zeros(2) for name in ("ab", "ba")[rank()]})


def gather_another_leaf() -> None:
    gather([zeros(2), 1.5 if rank() else zeros(2)])


def reduce_shapes() -> None:
    reduce({"x": zeros(1, 5)} if not rank() else {"x": zeros(1, 2, 5)})


def reduce_otherwise() -> None:
    reduce(zeros(1), "max" if rank() else "sum")


def reduce_or_leave() -> None:
    reduce(zeros(1), "none" if rank() else "sum")


def broadcast_shapes() -> None:
    broadcast([zeros(1, 5 + rank())])


def broadcast_from_several() -> None:
    broadcast(zeros(1), from_process=rank())


def broadcast_objects_from_several() -> None:
    broadcast_object_list([1], from_process=rank())


def pad_dimensions() -> None:
    pad_across_processes({"x": zeros(1, 1, 6) if rank() else zeros(1, 5)})


def pad_types() -> None:
    pad_across_processes(zeros(1 + rank(), dtype=torch.int32 if rank() else torch.int64))


def metrics_or_objects() -> None:
    Accelerator().gather_for_metrics(["text"] if rank() else zeros(2))


def gather_or_reduce() -> None:
    if rank():
        gather(zeros(3))
    else:
        reduce(zeros(3))


def objects_or_wait() -> None:
    if rank():
        PartialState().wait_for_everyone()
    else:
        gather_object([1])


def pad_or_save(folder: str) -> None:
    participants.NOTICE_AFTER_S = 0.0
    if rank():
        Accelerator().save_state(folder)
    else:
        pad_across_processes(zeros(2))


def many_tensors() -> None:
    gather([zeros(1 + rank()) for _ in range(20)])


def message_of(call: Callable[..., None], *args: Any) -> str:
    """The error of a call in debug mode, after which the ranks still go together."""
    PartialState().debug = True
    try:
        call(*args)
    except DistributedOperationException as error:
        PartialState().debug = False
        assert gather(torch.tensor(rank())).tolist() == list(range(PartialState().num_processes))
        return str(error)
    return "nothing is raised"


EXPECTED: dict[Callable[..., None], list[str]] = {
    gather_shapes: [
        "gather needs tensors of the same shapes and types on all ranks, but they differ:",
        "['logits'][1][0]: float32 (4, 10) on rank 0; float32 (3, 10) on rank 1\n",
        f"{Path(__file__).name} line {gather_shapes.__code__.co_firstlineno + 1} in gather_shapes: gather({{",
    ],
    gather_types: [".right: float32 (2,) on rank 0; int64 (2,) on rank 1\n"],
    gather_structures: ["['mask']: a list on rank 0; missing on rank 1\n"],
    gather_nodes: [".targets: a tuple on rank 0; a list on rank 1\n"],
    gather_orders: ["the order: rank 0: ['a'], ['b']\n", "the order: rank 1: ['b'], ['a']\n"],
    gather_another_leaf: ["[1]: float32 (2,) on rank 0; a float on rank 1\n"],
    reduce_shapes: ["reduce(reduction='mean') needs", "['x']: float32 (1, 5) on rank 0; float32 (1, 2, 5) on rank 1\n"],
    reduce_otherwise: ["rank 0: reduce(reduction='sum') at ", "rank 1: reduce(reduction='max') at "],
    reduce_or_leave: ["rank 1: reduce(reduction='none') at "],
    broadcast_shapes: ["[0]: float32 (1, 5) on rank 0; float32 (1, 6) on rank 1\n"],
    broadcast_from_several: ["rank 0: broadcast(from_process=0) at ", "rank 1: broadcast(from_process=1) at "],
    broadcast_objects_from_several: ["rank 1: broadcast_object_list(from_process=1) at "],
    pad_dimensions: [
        "pad_across_processes(dim=0) needs tensors of the same number of dimensions, and of the same types, on all",
        "['x']: float32 with 2 dimensions on rank 0; float32 with 3 dimensions on rank 1\n",
    ],
    pad_types: ["the argument: int64 with 1 dimension on rank 0; int32 with 1 dimension on rank 1\n"],
    metrics_or_objects: ["rank 0: gather at ", "rank 1: gather_object at ", "Accelerator().gather_for_metrics("],
    gather_or_reduce: [
        "the ranks are about to run different operations:",
        "rank 0: reduce(reduction='mean') at ",
        "in gather_or_reduce: reduce(zeros(3))\n",
        "rank 1: gather at ",
        "in gather_or_reduce: gather(zeros(3))\n",
    ],
    objects_or_wait: ["rank 0: gather_object at ", "rank 1: wait_for_everyone at "],
    many_tensors: ["[7]: float32 (1,) on rank 0; float32 (2,) on rank 1\n    and 12 more\n"],
}


@pytest.fixture(scope="module")
def messages() -> Cases:
    return Cases({call: (message_of, call) for call in EXPECTED})


@pytest.mark.parametrize("call", EXPECTED)
def test_ranks_that_differ_all_say_who_has_what_and_where(call: Callable[..., None], messages: Cases) -> None:
    first, second = messages[call]
    assert first == second
    for part in EXPECTED[call]:
        assert part in first


def test_a_rank_that_saves_while_another_does_not_is_named(tmp_path: Any) -> None:
    for message in launch(message_of, pad_or_save, str(tmp_path / "state")):
        assert "rank 0: pad_across_processes(dim=0) at " in message
        assert "rank 1: save_state at " in message


def one_of_four_differs() -> tuple[str, str]:
    state = PartialState()
    groups = [dist.new_group(members) for members in ([0, 1], [2, 3])]
    of_all = message_of(lambda: gather(zeros(2 if rank() == 2 else 1)))
    of_a_group = message_of(lambda: state.compare_calls("gather", zeros(rank()), groups[rank() // 2]))
    return of_all, of_a_group


def test_ranks_that_agree_share_a_line_and_have_the_numbers_of_all() -> None:
    found = launch(one_of_four_differs, size=4)
    for of_all, _ in found:
        assert "the argument: float32 (1,) on ranks 0-1, 3; float32 (2,) on rank 2\n" in of_all
        assert "\n      ranks 0-3: " in of_all
    assert [message.count("on rank 3") for _, message in found] == [0, 0, 1, 1]


def alike() -> list[Any]:
    state = PartialState()
    state.debug = True
    accelerator = Accelerator()
    with accelerator.main_process_first():
        pass
    padded = accelerator.pad_across_processes({"x": [zeros(1 + rank(), 2)]}, dim=0)
    accelerator.set_trigger()
    return [
        tuple(padded["x"][0].shape),
        accelerator.gather(Pair(torch.tensor(rank()), zeros(1))).left.tolist(),
        accelerator.gather_for_metrics(["a", rank()]),
        reduce(torch.tensor([1.0]), "sum").tolist(),
        broadcast(torch.tensor([rank()]), from_process=1).tolist(),
        broadcast_object_list([rank(), "b" * rank()], from_process=1),
        accelerator.check_trigger(),
    ]


def test_ranks_that_agree_get_what_they_get_without_it(ranks: Any) -> None:
    assert ranks(alike) == [[(2, 2), [0, 1], ["a", 0, "a", 1], [2.0], [1], [1, "b"], True]] * 2


def started(debug: bool) -> int:
    """How many collectives an operation takes."""
    state = PartialState()
    state.debug = debug
    begun = process_group.operations()
    gather({"x": zeros(2), "y": zeros(3)})
    return process_group.operations() - begun


def started_without_and_with() -> tuple[int, int]:
    return started(False), started(True)


def test_nothing_more_is_sent_when_it_is_off(ranks: Any) -> None:
    off, on = ranks(started_without_and_with)[0]
    assert off == 1
    assert on > off


def step_or_gather() -> None:
    accelerator = Accelerator()
    model = accelerator.prepare(torch.nn.Linear(2, 1))
    for _ in range(2):
        accelerator.backward(model(zeros(3, 2)).sum())
    loss = model(zeros(3, 2)).sum()
    if rank():
        accelerator.backward(loss)
    else:
        accelerator.gather(zeros(1))


def errors_of_both() -> list[str]:
    found = []
    for call in (gather_or_reduce, step_or_gather):
        try:
            call()
        except RuntimeError as error:
            found.append(str(error))
    return found


def test_a_launch_from_a_notebook_compares_calls_and_what_torch_exchanges_in_a_backward_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fork server of its own imports torch, which reads its debug level then."""
    monkeypatch.setenv("NOTEBOOK_ACCEL_DEBUG", "true")
    for of_calls, of_torch in launch(errors_of_both):
        assert "in gather_or_reduce: reduce(zeros(3))" in of_calls
        assert "OpType=ALLREDUCE" in of_torch
