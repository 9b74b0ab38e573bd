"""Draws programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from tests.train.equivalence import known
from tests.train.equivalence.program import (
    CLIPS,
    METRICS,
    MODELS,
    OPTIMIZERS,
    ORDERS,
    SCHEDULERS,
    STRATEGIES,
    Program,
    rounds,
)


def programs(strategies: Sequence[str] = (*["ddp"] * 6, *STRATEGIES)) -> st.SearchStrategy[Program]:
    """Any program with one of these strategies, but those that would only show a fault that is known."""
    return _programs(strategies).filter(lambda program: not known.is_spared(program))


@st.composite
def _programs(draw: st.DrawFn, strategies: Sequence[str]) -> Program:
    strategy = draw(st.sampled_from(strategies))
    ranks = draw(st.sampled_from(STRATEGIES[strategy].ranks))
    shares = ranks // STRATEGIES[strategy].sharing
    data = draw(st.sampled_from(["map", "map", "map", "stream", "sized stream"]))
    split = draw(st.booleans())
    size = draw(st.integers(1, 6))
    if split and draw(st.integers(0, 9)):  # otherwise, it would mostly be refused
        size = shares * (1 + size // 3)
    chosen: dict[str, Any] = {"order": draw(st.sampled_from(list(ORDERS)))} if data == "map" else {}
    even = strategy != "ddp" or draw(st.sampled_from([True, True, True, True, False]))
    drop = draw(st.booleans())
    if chosen.get("order") == "own batches":
        split = drop = False
    samples = draw(st.integers(1, 23))
    epochs = draw(st.integers(1, 3))
    what = draw(st.sampled_from(["", "", "", "stops", "saves", "saves", "turns"])) if even else ""
    if what == "stops":
        chosen["stops"] = (draw(st.integers(0, ranks - 1)), draw(st.integers(1, 8)))
    program = Program(
        ranks=ranks,
        strategy=strategy,
        data=data,
        samples=samples,
        batch_size=size,
        drop_last=drop,
        workers=draw(st.sampled_from([0] * 15 + [1])),
        split_batches=split,
        even_batches=even,
        dispatch_batches=draw(st.sampled_from([None, False, True])),
        epochs=epochs,
        accumulation=draw(st.integers(1, 4)),
        forces_last=draw(st.sampled_from([True, True, True, False])),
        syncs_each=draw(st.sampled_from([False, False, False, True])),
        nested=draw(st.sampled_from([False] * 5 + [True])),
        local_steps=draw(st.sampled_from([0] * 7 + [1, 2, 3])) if strategy == "ddp" else 0,
        precision=draw(st.sampled_from(["no"] * 7 + ["bf16"])),
        model=draw(st.sampled_from(["plain", *MODELS])) if "tensor" not in strategy else "plain",
        schedules=draw(st.sampled_from(["steps", "steps", "epochs", "alone"])),
        reduces=draw(st.sampled_from(["", "", "sum", "mean"])),
        models=draw(st.sampled_from([1, 1, 1, 2])) if even else 1,
        optimizer=draw(st.sampled_from(list(OPTIMIZERS))),
        scheduler=draw(st.sampled_from(["", *SCHEDULERS])),
        clip=draw(st.sampled_from(["", *CLIPS])),
        metrics=draw(st.sampled_from(list(METRICS))),
        evaluated=draw(st.sampled_from([0, 0, 1, 5, 8, 11])) if even else 0,
        evaluates_within=draw(st.sampled_from([False, False, True])),
        **chosen,
    )
    if what == "turns" and not program.is_ragged:
        return replace(program, turns=draw(st.integers(1, 9)))
    if what == "saves" and not program.is_ragged and (total := rounds(program)):
        return draw(_saving(program, total))
    return program


@st.composite
def _saving(draw: st.DrawFn, program: Program, total: int) -> Program:
    """The program, which saves after one of so many batches, and continues on other ranks."""
    resuming = draw(st.sampled_from([program.ranks, program.ranks, *STRATEGIES[program.strategy].ranks]))
    number = draw(st.integers(1, total))
    if not program.split_batches and number * program.ranks % resuming:
        number = total  # elsewhere, it would not be between two batches of those
    saves = draw(st.integers(0, program.epochs - 1)), number
    is_stateful = resuming == program.ranks and draw(st.sampled_from([False, False, True]))
    return replace(program, saves=saves, resuming_ranks=resuming, is_stateful=is_stateful)
