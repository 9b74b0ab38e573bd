"""Draws programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from tests.train.equivalence import known
from tests.train.equivalence.program import (
    CLIPS,
    FORMS,
    METRICS,
    MODELS,
    OPTIMIZERS,
    ORDERS,
    SCHEDULERS,
    STRATEGIES,
    Program,
    rounds,
)


def programs(
    strategies: Sequence[str] = (*["ddp"] * 8, *STRATEGIES), fixed: Mapping[str, Any] | None = None
) -> st.SearchStrategy[Program]:
    """Any program with one of these strategies and these fields, but those that would only show a known fault."""
    return _programs(strategies, fixed or {}).filter(lambda program: not known.is_spared(program))


@st.composite
def _programs(draw: st.DrawFn, strategies: Sequence[str], fixed: Mapping[str, Any]) -> Program:
    def choose(name: str, options: Sequence[Any]) -> Any:
        return fixed[name] if name in fixed else draw(st.sampled_from(options))

    strategy = choose("strategy", strategies)
    is_plain = strategy == "ddp"
    ranks = choose("ranks", STRATEGIES[strategy].ranks)
    shares = ranks // STRATEGIES[strategy].sharing
    data = choose("data", ["map"] * 6 + ["stream", "sized stream", "files"])
    split = choose("split_batches", [False, True])
    size = choose("batch_size", range(1, 7))
    if split and draw(st.integers(0, 9)):  # otherwise, it would mostly be refused
        size = shares * (1 + size // 3)
    what = choose("what", ["", "", "", "stops", "saves", "saves", "turns"])
    local = choose("local_steps", [0] * 11 + [1, 2, 3]) if is_plain and what != "saves" else 0
    even = choose("even_batches", [True] * 4 + [False]) if is_plain and not what else True
    chosen: dict[str, Any] = {"order": choose("order", list(ORDERS))} if data == "map" else {}
    chosen |= {"files": choose("files", range(1, 9))} if data == "files" else {}
    drop = choose("drop_last", [False, True])
    if chosen.get("order") == "own batches":
        split = drop = False
    precision = choose("precision", ["no"] * 7 + ["bf16"])
    optimizer = choose("optimizer", list(OPTIMIZERS))
    # In bf16, a rounded error may be just above or below what a plateau compares it with. One cycle needs a momentum.
    senseless = ["plateau"] * (precision != "no") + ["one cycle"] * (optimizer == "schedule-free")
    schedulers = [each for each in SCHEDULERS if each not in senseless]
    # AdamW divides by the size of a gradient: once all are cut to one size, a rounded one near zero takes a full step.
    clips = [each for each in CLIPS if not (each == "value" and optimizer == "adamw" and precision != "no")]
    if "context" in strategy:
        chosen["model"] = "sequence"
    elif "tensor" not in strategy:
        chosen["model"] = choose("model", ["plain", *MODELS])
    if what == "stops":
        chosen["stops"] = (draw(st.integers(0, ranks - 1)), draw(st.integers(1, 8)))
    program = Program(
        ranks=ranks,
        strategy=strategy,
        data=data,
        samples=choose("samples", range(1, 24)),
        batch_size=size,
        form=choose("form", ["dict"] * 6 + list(FORMS)),
        drop_last=drop,
        workers=choose("workers", [0] * 15 + [1]),
        split_batches=split,
        even_batches=even,
        dispatch_batches=choose("dispatch_batches", [None, False, True]),
        epochs=choose("epochs", [1, 2, 3]),
        counts=choose("counts", [False, False, True]),
        seeds=choose("seeds", [False, False, False, True]),
        accumulation=choose("accumulation", [1, 2, 3, 4]),
        forces_last=choose("forces_last", [True, True, True, False]),
        syncs_each=choose("syncs_each", [False, False, False, True]),
        nested=choose("nested", [False] * 5 + [True]),
        local_steps=local,
        precision=precision,
        schedules=choose("schedules", ["steps", "steps", "epochs", "alone"]),
        metric=choose("metric", ["mean", "own"]) if even else "own",
        reduces=choose("reduces", ["", "", "sum", "mean"]),
        models=choose("models", [1, 1, 1, 2]) if even and not local else 1,
        optimizer=optimizer,
        scheduler=choose("scheduler", ["", *schedulers]),
        clip=choose("clip", ["", *clips]),
        metrics=choose("metrics", list(METRICS)),
        evaluated=choose("evaluated", [0, 0, 1, 5, 8, 11]) if even else 0,
        evaluates_within=choose("evaluates_within", [False, False, True]) and not local,
        **chosen,
    )
    if what == "turns" and not program.is_ragged:
        program = replace(program, turns=draw(st.integers(1, 9)), pairing=choose("pairing", ["", "zip", "in turn"]))
        is_open = program.pairing and program.order in ("shuffled", "shuffled by a generator")
        return replace(program, order="seedable") if is_open else program
    if what == "saves" and not program.is_ragged and (total := rounds(program)):
        return draw(_saving(program, total))
    return program


@st.composite
def _saving(draw: st.DrawFn, program: Program, total: int) -> Program:
    """The program, which saves after one of so many batches, and continues on other ranks."""
    resuming = draw(st.sampled_from([program.ranks, program.ranks, *STRATEGIES[program.strategy].ranks]))
    number = draw(st.integers(1, total))
    if program.counts:
        resuming = program.ranks
    elif not program.split_batches and number * program.ranks % resuming:
        number = total  # elsewhere, it would not be between two batches of those
    saves = draw(st.integers(0, program.epochs - 1)), number
    # At the end of an epoch, a stateful loader continues with no batch, of which a plateau could be told the error.
    can_be_stateful = resuming == program.ranks and program.scheduler != "plateau"
    is_stateful = can_be_stateful and draw(st.sampled_from([False, False, True]))
    return replace(program, saves=saves, resuming_ranks=resuming, is_stateful=is_stateful)
