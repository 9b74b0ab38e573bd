"""What a program gives on one device: plain torch, written from what the documents say.

The only thing taken from the ranks is an order that nobody has determined (`shuffle=True` without a generator).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, cycle, islice, zip_longest
from typing import Any

import torch
from torch import nn

from tests.train.equivalence.program import Program, files, resumption
from tests.train.equivalence.program import rounds as rounds_of

Batches = list[list[int]]
Seen = Sequence[Sequence[Batches]]
"""By rank and epoch, the batches that a training run has read."""


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


@dataclass(frozen=True)
class Batch:
    """What a step learns from."""

    rounds: list[Round]
    """Several of `zip`."""
    is_last: bool
    """Whether one of them is the last of its loader."""
    is_reported: bool
    """Whether the ranks report it."""


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
    is_cut: bool = False
    """Whether the training ends before its end, so that it doesn't report the weights."""

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
    if resumed is None:
        return [_train(program, definitions, _Orders(program, definitions, seen), None)]
    if program.is_interrupted:
        program, seen, begin = _continued(program, seen, resumed)
    else:
        begin = resumption(program)
    found = [_train(program, definitions, _Orders(program, definitions, seen), None)]
    orders = _Orders(program, definitions, seen, begin, resumed)
    return [*found, _train(program, definitions, orders, begin)]


def _continued(program: Program, seen: Seen, resumed: Seen) -> tuple[Program, Seen, tuple[int, int]]:
    """Where the ranks continue, which only they know; and all that they have read, without what they have repeated."""
    epoch, done = program.epochs - len(resumed[0]), rounds_of(program) - len(resumed[0][0])
    every = [
        [*one[:epoch], [*(one[epoch][:done] if done else []), *other[0]], *other[1:]]
        for one, other in zip(seen, resumed, strict=True)
    ]
    return program, every, (epoch, done)


def _train(program: Program, definitions: dict[str, Any], orders: _Orders, begin: tuple[int, int] | None) -> Expected:
    """One training, of which the ranks report all, or what comes after a checkpoint."""
    trainer = _Trainer(program, definitions)
    found = Expected(program.ranks if begin is None else program.resuming_ranks)
    for epoch in range(program.epochs):
        trainer.local = 0
        for plan in _plans(program, orders, epoch, begin):
            if begin is None or epoch >= begin[0]:
                found.begin_epoch()
            for number, each in enumerate(plan, 1):
                losses, reduced = trainer.step(each)
                evaluation = trainer.evaluate() if program.evaluated and program.evaluates_within else None
                if each.is_reported:
                    found.losses[-1] += losses
                    found.reduced += reduced
                    found.evaluations += [evaluation] if evaluation is not None else []
                    for rank in range(found.ranks):
                        parts = [each.parts[rank // program.sharing] for each in each.rounds]
                        if parts := [part for part in parts if part]:
                            found.seen[rank][-1] += parts
                            found.rates[rank].append(trainer.rates)
                if begin is None and program.is_interrupted and (epoch, number) == program.saves:
                    found.is_cut = True
                    return found
                if program.stops and trainer.batches == program.stops[1]:
                    orders.was_left = True
                    break
        trainer.average()
        is_saved = begin is not None and program.saves is not None and program.saves[0] == epoch < begin[0]
        # The checkpoint was saved before the schedule's step, and the other training begins after it.
        if program.is_interrupted or not is_saved:
            trainer.end_epoch(found.ranks // program.sharing if begin and epoch >= begin[0] else program.shares)
        if program.evaluated and not program.evaluates_within:
            evaluation = trainer.evaluate()
            found.evaluations += [evaluation] if begin is None or epoch >= begin[0] else []
    found.weights = trainer.weights()
    return found


def _plans(program: Program, orders: _Orders, epoch: int, begin: tuple[int, int] | None) -> list[list[Batch]]:
    """What each loop of an epoch learns from."""
    batches = orders.batches(epoch)
    rounds = _rounds(program, program.shares, batches)
    if begin is not None:
        assert program.saves
        first_epoch, skipped = begin
        done = skipped if program.is_interrupted else program.saves[1]
        done = len(rounds) if epoch < first_epoch else done if epoch == first_epoch and skipped else 0
        left = _rounds(program, program.resuming_ranks // program.sharing, batches)
        left = [] if epoch < first_epoch else left[skipped if epoch == first_epoch else 0 :]
        before = [Batch(each.rounds, each.is_last and not left, False) for each in _batches(rounds[:done])]
        return [before + _batches(left)]
    if not program.turns:
        return [_batches(rounds)]
    indices = list(range(program.turns))
    size = program.batch_size
    simple = replace(program, order="in order", data="map", samples=program.turns, drop_last=False)
    others = _rounds(simple, program.shares, [indices[start : start + size] for start in range(0, program.turns, size)])
    if program.pairing == "zip":
        orders.was_left = orders.was_left or len(rounds) > len(others)
        pairs = zip(_batches(rounds), _batches(others), strict=False)
        return [[Batch(one.rounds + other.rounds, one.is_last or other.is_last, True) for one, other in pairs]]
    if program.pairing == "in turn":
        turns = zip_longest(_batches(rounds), _batches(others)[: len(rounds)])
        return [[each for each in chain(*turns) if each is not None]]
    return [_batches(rounds), _batches(others)]


def _batches(rounds: list[Round]) -> list[Batch]:
    return [Batch([each], is_last=number == len(rounds), is_reported=True) for number, each in enumerate(rounds, 1)]


class _Replica:
    """The models, and what changes them."""

    def __init__(self, program: Program, definitions: dict[str, Any]) -> None:
        if program.seeds:
            torch.manual_seed(3)
        self.models: list[nn.Module] = [definitions["make_model"](seed) for seed in range(program.models)]
        self.optimizers = [definitions["make_optimizer"](model) for model in self.models]
        self.scheduler = definitions["make_scheduler"](self.optimizers[0]) if program.scheduler else None


class _Trainer:
    """What learns, on the single device; with `LocalSGD`, one replica for each rank."""

    def __init__(self, program: Program, definitions: dict[str, Any]) -> None:
        self.program = program
        self.sample = definitions["sample"]
        self.replicas = [_Replica(program, definitions) for _ in range(program.shares if program.local_steps else 1)]
        self.left = getattr(self.replicas[0].scheduler, "total_steps", None) or 10**9
        self.batches = self.count = self.local = 0
        self.is_due = True
        self.last = [0.0] * program.shares
        """The error of each rank's last batch."""
        self._tell("train")

    @property
    def rates(self) -> list[float]:
        return [group["lr"] for group in self.replicas[0].optimizers[0].param_groups]

    def step(self, batch: Batch) -> tuple[list[tuple[int, float]], list[float]]:
        """Learns from a batch; returns the errors of the samples that are not there to fill it, and those reduced."""
        program, first = self.program, batch.rounds[0]
        shares = len(first.parts)
        self.last = [0.0] * shares if len(self.last) != shares else self.last
        self.batches += 1
        self.count += 1
        # "The last batch always ends in a step", unless the plugin says otherwise, and restarts the count.
        is_last = batch.is_last and program.forces_last
        self.is_due = self.count % program.accumulation == 0 or is_last
        if is_last:
            self.count = 0
        losses: list[float] = []
        means: list[float] = []
        averaged = shares // len(self.replicas)  # over so many ranks, as their gradients are
        for number in range(program.models):
            for share in range(shares):
                replica = self.replicas[share % len(self.replicas)]
                found = [
                    self._errors(replica.models[number], each.parts[share])
                    for each in batch.rounds
                    if each.parts[share]
                ]
                if not found:
                    continue
                loss = sum(errors.mean() for errors in found) / len(found)
                (loss / averaged / program.accumulation).backward()
                if not number:
                    losses += found[0].tolist()
                    means.append(found[0].mean().item())
                    self.last[share] = means[-1]
            for replica in self.replicas:
                if self.is_due:
                    self._clip(replica.models[number])
                    replica.optimizers[number].step()
            if not number and program.schedules != "epochs":
                self._schedule(shares)
            for replica in self.replicas:
                if self.is_due:
                    replica.optimizers[number].zero_grad()
        self.local += 1
        if program.local_steps and self.local % program.local_steps == 0:
            self.average()
        # Each rank has reduced the mean of its own samples, or of its part of the sequences.
        total = sum(means) * (program.sharing if program.shares_sequences else 1)
        reduced = {"": [], "sum": [total], "mean": [sum(means) / shares]}[program.reduces]
        reduced = [] if program.is_joined else reduced
        return list(zip(first.samples, losses, strict=True))[: first.kept], reduced

    def average(self) -> None:
        """Gives all replicas their average."""
        with torch.no_grad():
            for same in zip(*(replica.models[0].parameters() for replica in self.replicas), strict=True):
                mean = torch.stack(same).mean(0)
                for each in same:
                    each.copy_(mean)

    def end_epoch(self, shares: int) -> None:
        """Takes the steps of a schedule that counts epochs."""
        if self.program.schedules == "epochs":
            self._schedule(shares)

    def evaluate(self) -> list[tuple[int, float]]:
        self._tell("eval")
        with torch.no_grad():
            found = self._errors(self.replicas[0].models[0], range(self.program.evaluated)).tolist()
        self._tell("train")
        return list(enumerate(found))

    def weights(self) -> list[dict[str, Any]]:
        """Those at the end."""
        self._tell("eval")
        return [{name: each.tolist() for name, each in model.state_dict().items()} for model in self.replicas[0].models]

    def _tell(self, mode: str) -> None:
        for replica in self.replicas if self.program.is_schedule_free else []:
            for optimizer in replica.optimizers:
                getattr(optimizer, mode)()

    def _errors(self, model: nn.Module, indices: Sequence[int]) -> torch.Tensor:
        samples = [self.sample(index) for index in indices]
        with torch.autocast("cpu", torch.bfloat16, enabled=self.program.precision == "bf16"):
            outputs = model(torch.stack([each["inputs"] for each in samples]))[..., 0]
        outputs = outputs.to(samples[0]["inputs"].dtype)  # "outputs come back in float32"
        errors = (outputs - torch.stack([each["target"] for each in samples])).square()
        return errors.mean(1) if errors.ndim > 1 else errors

    def _clip(self, model: nn.Module) -> None:
        if self.program.clip == "norm":
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        elif self.program.clip == "value":
            nn.utils.clip_grad_value_(model.parameters(), 0.01)

    def _schedule(self, shares: int) -> None:
        """A schedule was written for one rank: it takes a step for each rank that has a batch, if optimizers step."""
        program = self.program
        steps = shares if self.is_due and not program.split_batches else int(self.is_due)
        metric = [sum(self.last) / len(self.last)] if program.scheduler == "plateau" else []
        if program.schedules == "alone":
            steps = 1
        elif metric:  # which is one step on any number of ranks
            steps = int(self.is_due)
        for _ in range(min(steps, self.left) if program.scheduler else 0):
            for replica in self.replicas:
                replica.scheduler.step(*metric)
            self.left -= 1


class _Orders:
    """The batches of each epoch, of the loader that nobody has prepared."""

    def __init__(
        self,
        program: Program,
        definitions: dict[str, Any],
        seen: Seen,
        begin: tuple[int, int] = (0, 0),
        resumed: Seen = (),
    ) -> None:
        self.program = program
        self.loader = definitions["make_loader"]()
        self.unpack = definitions["unpack"]
        self.seen = seen
        self.was_left = False
        """Whether an epoch was left early."""
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
        is_open = program.order == "shuffled" or (program.order == "shuffled by a generator" and self.was_left)
        if "seedable" not in program.order and not is_open:
            return [self.unpack(batch)["index"].tolist() for batch in self.loader]
        if "seedable" in program.order:  # "depends only on the seed and the epoch"
            torchs = 3 if program.seeds else program.models - 1
            seed = 5 if program.order == "seedable" else torchs
            generator = torch.Generator().manual_seed(seed + epoch)
            order = torch.randperm(program.samples, generator=generator).tolist()
        else:
            order = self._order(
                epoch,
                self.redrawn.get(epoch)
                or [rank[epoch * (2 if program.turns and not program.pairing else 1)] for rank in self.seen],
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
    if program.reads_own_files:
        return _of_own_files(program, shares)
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
        if program.even_batches:  # rank 0 no longer has the first batches
            taken += islice(cycle(taken if program.dispatches else batches[:shares]), shares - len(taken))
        rounds.append(Round([*taken, *[[]] * (shares - len(taken))], kept))
    return rounds


def _of_own_files(program: Program, shares: int) -> list[Round]:
    """Each rank reads its own files, until it has no more."""
    every, size = files(program), program.batch_size
    by_share: list[Batches] = []
    for share in range(shares):
        own = list(chain(*every[share * len(every) // shares : (share + 1) * len(every) // shares]))
        batches = [own[start : start + size] for start in range(0, len(own), size)]
        by_share.append([each for each in batches if len(each) == size or not program.drop_last])
    return [Round(list(parts), 0) for parts in zip_longest(*by_share, fillvalue=[])]


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
