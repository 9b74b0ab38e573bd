"""Draws programs."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.train.equivalence.program import CLIPS, OPTIMIZERS, ORDERS, SCHEDULERS, Program


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Any program."""
    ranks = draw(st.integers(1, 4))
    split = draw(st.booleans())
    size = draw(st.integers(1, 6))
    if split and draw(st.integers(0, 9)):  # otherwise, it would mostly be refused
        size = ranks * (1 + size // 3)
    return Program(
        ranks=ranks,
        samples=draw(st.integers(1, 23)),
        batch_size=size,
        drop_last=draw(st.booleans()),
        order=draw(st.sampled_from(list(ORDERS))),
        split_batches=split,
        even_batches=draw(st.just(True)),
        dispatch_batches=draw(st.sampled_from([None, False, True])),
        epochs=draw(st.integers(1, 3)),
        accumulation=draw(st.integers(1, 4)),
        optimizer=draw(st.sampled_from(list(OPTIMIZERS))),
        scheduler=draw(st.sampled_from(["", *SCHEDULERS])),
        clip=draw(st.sampled_from(["", *CLIPS])),
    )
