"""Draws programs."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.train.equivalence import known
from tests.train.equivalence.program import CLIPS, METRICS, OPTIMIZERS, ORDERS, SCHEDULERS, STRATEGIES, Program


def programs() -> st.SearchStrategy[Program]:
    """Any program, but those that would only show a fault that is known."""
    return _programs().filter(lambda program: not known.is_spared(program))


@st.composite
def _programs(draw: st.DrawFn) -> Program:
    strategy = draw(st.sampled_from(["ddp"] * 6 + list(STRATEGIES)))
    ranks = draw(st.sampled_from(STRATEGIES[strategy].ranks))
    shares = ranks // STRATEGIES[strategy].sharing
    data = draw(st.sampled_from(["map", "map", "map", "stream", "sized stream"]))
    split = draw(st.booleans())
    size = draw(st.integers(1, 6))
    if split and draw(st.integers(0, 9)):  # otherwise, it would mostly be refused
        size = shares * (1 + size // 3)
    chosen: dict[str, Any] = {"order": draw(st.sampled_from(list(ORDERS)))} if data == "map" else {}
    even = draw(st.sampled_from([True, True, True, True, False]))
    drop = draw(st.booleans())
    if chosen.get("order") == "own batches":
        split = drop = False
    return Program(
        ranks=ranks,
        strategy=strategy,
        data=data,
        samples=draw(st.integers(1, 23)),
        batch_size=size,
        drop_last=drop,
        workers=draw(st.sampled_from([0] * 15 + [1])),
        split_batches=split,
        even_batches=even,
        dispatch_batches=draw(st.sampled_from([None, False, True])),
        epochs=draw(st.integers(1, 3)),
        accumulation=draw(st.integers(1, 4)),
        models=draw(st.sampled_from([1, 1, 1, 2])),
        optimizer=draw(st.sampled_from(list(OPTIMIZERS))),
        scheduler=draw(st.sampled_from(["", *SCHEDULERS])),
        clip=draw(st.sampled_from(["", *CLIPS])),
        metrics=draw(st.sampled_from(list(METRICS))),
        evaluated=draw(st.sampled_from([0, 0, 1, 5, 8, 11])) if even else 0,
        evaluates_within=draw(st.sampled_from([False, False, True])),
        **chosen,
    )
