"""What a program gives on one device: plain torch, written from what the documents say.

The only thing taken from the ranks is an order that nobody has determined (`shuffle=True` without a generator).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, cycle, islice
from typing import Any

import torch
from torch import nn

from tests.train.equivalence.program import Program, resumption

Batches = list[list[int]]
Seen = Sequence[Sequence[Batches]]
"""By rank and epoch, the batches that a training has read."""


@dataclass(frozen=True)
class Round:
    """The batches that the ranks have at the same time: together, one batch of the single device."""

    parts: Batches
    """By share of the samples; empty where a rank has run out."""
    kept: int
    """How many of the samples are not there to fill the round."""

    @property
    def samples(self) -> list[int]:
        return list(chain(*self.parts))


@dataclass
class Expected:
    """What the ranks of one training should return."""

    ranks: int
    seen: list[list[Batches]] = field(default_factory=list)
    """By rank and epoch, the batches."""
    rates: list[list[list[float]]] = field(default_factory=list)
    """By rank, the learning rates after each batch."""
    losses: list[list[tuple[int, float]]] = field(default_factory=list)
    """By epoch, each sample once, with its error."""
    evaluations: list[list[tuple[int, float]]] = field(default_factory=list)
    """The same for each evaluation."""
    reduced: list[float] = field(default_factory=list)
    """After each batch, the mean errors of the ranks, reduced."""
    weights: list[dict[str, Any]] = field(default_factory=list)
    """By model."""

    def __post_init__(self) -> None:
        self.seen = [[] for _ in range(self.ranks)]
        self.rates = [[] for _ in range(self.ranks)]

    def begin_epoch(self) -> None:
        for each in self.seen:
            each.append([])
        self.losses.append([])


class Illegal(Exception):
    """The ranks' order is not one that the documents allow."""


def expected(program: Program, definitions: dict[str, Any], seen: Seen, resumed: Seen | None = None) -> list[Expected]:
    """What one device gives: for the training, and for the one that continues from its checkpoint.

    Args:
        program: The program.
        definitions: Those of its script.
        seen: What the ranks have read.
        resumed: What those have read that continue from a checkpoint.

    Raises:
        Illegal: The order of the samples is wrong.
    """
    orders = _Orders(program, definitions["make_loader"](), seen)
    found = [_train(program, definitions, orders, None)]
    if resumed is not None:
        begin = resumption(program)
        orders = _Orders(program, definitions["make_loader"](), seen, begin, resumed)
        found.append(_train(program, definitions, orders, begin))
    return found


def _train(program: Program, definitions: dict[str, Any], orders: _Orders, begin: tuple[int, int] | None) -> Expected:
    """One training, of which the ranks report all, or what comes after a checkpoint."""
    trainer = _Trainer(program, definitions)
    found = Expected(program.ranks if begin is None else program.resuming_ranks)
    for epoch in range(program.epochs):
        for plan in _plans(program, orders, epoch, begin):
            if begin is None or epoch >= begin[0]:
                found.begin_epoch()
            for number, (each, is_reported) in enumerate(plan, 1):
                losses, reduced = trainer.step(each, is_last=number == len(plan))
                evaluation = trainer.evaluate() if program.evaluated and program.evaluates_within else None
                if is_reported:
                    found.losses[-1] += losses
                    found.reduced += reduced
                    found.evaluations += [evaluation] if evaluation is not None else []
                    for rank in range(found.ranks):
                        if part := each.parts[rank // program.sharing]:
                            found.seen[rank][-1].append(part)
                            found.rates[rank].append(trainer.rates)
                if program.stops and trainer.batches == program.stops[1]:
                    orders.repeats += 1
                    break
        is_saved = begin is not None and program.saves is not None and program.saves[0] == epoch < begin[0]
        if not is_saved:  # the checkpoint was saved before the schedule's step, and the other training begins after it
            trainer.end_epoch(found.ranks // program.sharing if begin and epoch >= begin[0] else program.shares)
        if program.evaluated and not program.evaluates_within:
            evaluation = trainer.evaluate()
            found.evaluations += [evaluation] if begin is None or epoch >= begin[0] else []
    found.weights = [{name: each.tolist() for name, each in model.state_dict().items()} for model in trainer.models]
    return found


def _plans(
    program: Program, orders: _Orders, epoch: int, begin: tuple[int, int] | None
) -> list[list[tuple[Round, bool]]]:
    """For each loader of an epoch, its rounds, and whether the ranks report them."""
    batches = orders.batches(epoch)
    rounds = _rounds(program, program.shares, batches)
    if begin is not None:
        assert program.saves
        first_epoch, skipped = begin
        done = len(rounds) if epoch < first_epoch else program.saves[1] if epoch == first_epoch and skipped else 0
        left = _rounds(program, program.resuming_ranks // program.sharing, batches)
        left = [] if epoch < first_epoch else left[skipped if epoch == first_epoch else 0 :]
        return [[(each, False) for each in rounds[:done]] + [(each, True) for each in left]]
    plans = [[(each, True) for each in rounds]]
    if program.turns:
        indices = list(range(program.turns))
        size = program.batch_size
        simple = replace(program, order="in order", data="map", samples=program.turns, drop_last=False)
        second = [indices[start : start + size] for start in range(0, program.turns, size)]
        plans.append([(each, True) for each in _rounds(simple, program.shares, second)])
    return plans


class _Trainer:
    """The models on the single device."""

    def __init__(self, program: Program, definitions: dict[str, Any]) -> None:
        self.program = program
        self.sample = definitions["sample"]
        self.models = [definitions["make_model"](seed) for seed in range(program.models)]
        self.optimizers = [definitions["make_optimizer"](model) for model in self.models]
        self.scheduler = definitions["make_scheduler"](self.optimizers[0]) if program.scheduler else None
        self.left = getattr(self.scheduler, "total_steps", None) or 10**9
        self.batches = self.count = 0
        self.is_due = True

    @property
    def rates(self) -> list[float]:
        return [group["lr"] for group in self.optimizers[0].param_groups]

    def step(self, batch: Round, is_last: bool) -> tuple[list[tuple[int, float]], list[float]]:
        """Learns from a batch; returns the errors of the samples that are not there to fill it, and those reduced."""
        program, shares = self.program, len(batch.parts)
        self.batches += 1
        self.count += 1
        # "The last batch always ends in a step", unless the plugin says otherwise, and restarts the count.
        is_last = is_last and program.forces_last
        self.is_due = self.count % program.accumulation == 0 or is_last
        if is_last:
            self.count = 0
        losses: list[float] = []
        means: list[float] = []
        for number, (model, optimizer) in enumerate(zip(self.models, self.optimizers, strict=True)):
            for part in filter(None, batch.parts):
                errors = self._errors(model, part)
                (errors.mean() / shares / program.accumulation).backward()  # ranks' gradients are averaged
                losses += errors.tolist() if not number else []
                means += [errors.mean().item()] if not number else []
            if self.is_due:
                self._clip(model)
                optimizer.step()
            if not number and program.schedules != "epochs":
                self._schedule(shares)
            if self.is_due:
                optimizer.zero_grad()
        reduced = {"": [], "sum": [sum(means)], "mean": [sum(means) / shares]}[program.reduces]
        reduced = [] if program.is_joined else reduced
        return list(zip(batch.samples, losses, strict=True))[: batch.kept], reduced

    def end_epoch(self, shares: int) -> None:
        """Takes the steps of a schedule that counts epochs."""
        if self.program.schedules == "epochs":
            self._schedule(shares)

    def evaluate(self) -> list[tuple[int, float]]:
        with torch.no_grad():
            return list(enumerate(self._errors(self.models[0], range(self.program.evaluated)).tolist()))

    def _errors(self, model: nn.Module, indices: Sequence[int]) -> torch.Tensor:
        samples = [self.sample(index) for index in indices]
        with torch.autocast("cpu", torch.bfloat16, enabled=self.program.precision == "bf16"):
            outputs = model(torch.stack([each["inputs"] for each in samples]))[:, 0]
        outputs = outputs.to(samples[0]["inputs"].dtype)  # "outputs come back in float32"
        return (outputs - torch.stack([each["target"] for each in samples])).square()

    def _clip(self, model: nn.Module) -> None:
        if self.program.clip == "norm":
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        elif self.program.clip == "value":
            nn.utils.clip_grad_value_(model.parameters(), 0.01)

    def _schedule(self, shares: int) -> None:
        """A schedule was written for one rank: it takes a step for each rank that has a batch, if optimizers step."""
        steps = shares if self.is_due and not self.program.split_batches else int(self.is_due)
        if self.program.schedules == "alone":
            steps = 1
        for _ in range(min(steps, self.left) if self.scheduler else 0):
            self.scheduler.step()
            self.left -= 1


class _Orders:
    """The batches of each epoch, of the loader that nobody has prepared."""

    def __init__(
        self, program: Program, loader: Any, seen: Seen, begin: tuple[int, int] = (0, 0), resumed: Seen = ()
    ) -> None:
        self.program = program
        self.loader = loader
        self.seen = seen
        self.repeats = 0
        """How many epochs were left early: each comes again."""
        self.redrawn: dict[int, list[Batches]] = {}
        """The epochs whose order is not that of the first training: "with different random numbers"."""
        if resumed and program.resuming_ranks != program.ranks:
            epoch, skipped = begin
            whole = range(bool(skipped), len(resumed[0]))
            self.redrawn = {epoch + number: [rank[number] for rank in resumed] for number in whole}

    def batches(self, epoch: int) -> Batches:
        """Those of the next epoch."""
        program = self.program
        # A generator that shuffles draws numbers at the end of an epoch, too, which is reached ahead of a `break`.
        is_open = program.order == "shuffled" or (program.order == "shuffled by a generator" and self.repeats)
        if program.order != "seedable" and not is_open:
            return [batch["index"].tolist() for batch in self.loader]
        if program.order == "seedable":  # "depends only on the seed and the epoch"
            generator = torch.Generator().manual_seed(5 + epoch - self.repeats)
            order = torch.randperm(program.samples, generator=generator).tolist()
        else:
            order = self._order(
                epoch, self.redrawn.get(epoch) or [rank[epoch * (2 if program.turns else 1)] for rank in self.seen]
            )
        batches = [order[start : start + program.batch_size] for start in range(0, len(order), program.batch_size)]
        return [each for each in batches if len(each) == program.batch_size or not program.drop_last]

    def _order(self, epoch: int, seen: Sequence[Batches]) -> list[int]:
        """The order in which the ranks have read, filled up with what they have dropped."""
        count, shares = self.program.samples, seen[:: self.program.sharing]
        rounds = [[rank[number] for rank in shares if number < len(rank)] for number in range(max(map(len, shares)))]
        order = list(chain(*chain(*rounds)))[:count]
        if len(set(order)) < len(order):
            raise Illegal(f"in epoch {epoch}, a shuffled order has a sample twice: {order}")
        return order + [index for index in range(count) if index not in order]


def _rounds(program: Program, shares: int, batches: Batches) -> list[Round]:
    """Which rank has which samples: "each rank takes every Nth batch", or its part of each."""
    if shares == 1:
        return [Round([batch], len(batch)) for batch in batches]
    if program.is_ragged:
        return _ragged(program, shares, batches)
    per_round = 1 if program.split_batches else shares
    full = program.batch_size * per_round
    rounds, first = [], list(chain(*batches[:per_round]))
    for start in range(0, len(batches), per_round):
        taken = batches[start : start + per_round]
        samples = list(chain(*taken))
        if len(samples) == full:
            rounds.append(Round(_cut(samples, [full // shares] * shares), full))
        elif not program.drop_last:
            rounds.append(_last(program, shares, samples, taken, first, full))
    return rounds


def _ragged(program: Program, shares: int, batches: Batches) -> list[Round]:
    """If the batch sampler has no `batch_size`, the last round is filled "with repeated batches"."""
    rounds = []
    for start in range(0, len(batches), shares):
        taken = batches[start : start + shares]
        kept = sum(map(len, taken))
        if program.dispatches:  # rank 0 cuts the last round into equal parts
            if start + shares >= len(batches) and (len(taken) < shares or len(set(map(len, taken))) > 1):
                rounds.append(_last(program, shares, list(chain(*taken)), taken, list(chain(*batches[:shares])), 0))
                break
        elif program.even_batches:
            taken += islice(cycle(batches[:shares]), shares - len(taken))
        rounds.append(Round([*taken, *[[]] * (shares - len(taken))], kept))
    return rounds


def _last(program: Program, shares: int, samples: list[int], taken: Batches, first: list[int], full: int) -> Round:
    """The last round: "filled with repeated samples", unless batches need not be even."""
    count = len(samples)
    if program.even_batches:
        size = -(-count // shares) if program.dispatches else full // shares  # rank 0 fills up only to equal parts
        filled = [*samples, *islice(cycle(first), size * shares - count)]
        return Round(_cut(filled, [size] * shares), count)
    if program.dispatches:
        sizes = [count // shares + (rank < count % shares) for rank in range(shares)]
    elif program.split_batches:
        sizes = [full // shares] * shares
    else:
        sizes = [len(batch) for batch in taken]
    return Round(_cut(samples, sizes + [0] * (shares - len(sizes))), count)


def _cut(samples: list[int], sizes: Sequence[int]) -> Batches:
    rest = iter(samples)
    return [list(islice(rest, size)) for size in sizes]
