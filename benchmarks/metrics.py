"""Evaluating 100,000 samples on 2 gloo ranks, gathered for metrics: notebook-accel and Accelerate in turn."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from common import Spread, goal, in_turn, table, warn_if_busy
from torch.utils.data import DataLoader, Dataset, TensorDataset

from notebook_accel import Accelerator, notebook_launcher

RANKS = 2
SAMPLES = 100_003  # so that the last batch has repeated samples to leave out
FEATURES, CLASSES = 32, 10


@dataclass(frozen=True)
class Evaluation:
    """What is gathered, and in which portions."""

    name: str
    batch: int
    """Samples of a rank's batch."""
    what: str
    """`labels`: predicted and true classes; `scores`: a row of numbers for each sample too; `objects`: Python ones."""
    samples: int = SAMPLES


EVALUATIONS = (
    Evaluation("classes, batch 64", 64, "labels"),
    Evaluation("classes, batch 512", 512, "labels"),
    Evaluation("scores, batch 64", 64, "scores"),
    Evaluation("scores, batch 2048", 2048, "scores"),
    Evaluation("objects, batch 256", 256, "objects"),
)


class Rows(Dataset[Any]):
    """Whole batches at a time: one sample after the other takes longer to fetch than all that is measured here."""

    def __init__(self, data: TensorDataset) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitems__(self, indices: list[int]) -> tuple[torch.Tensor, ...]:
        return self.data[indices]  # type: ignore[index]


def rank(evaluation: Evaluation, rounds: int) -> dict[str, list[float]]:
    """On each rank: seconds of an evaluation, by contender; one of each in a round."""
    from accelerate import Accelerator as Peer

    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(evaluation.samples, FEATURES, generator=generator)
    data = TensorDataset(inputs, torch.randint(0, CLASSES, (len(inputs),), generator=generator))
    makers = {"Accelerate": Peer, "notebook-accel": Accelerator}
    contenders = {name: contender(make(cpu=True), evaluation, data) for name, make in makers.items()}
    return in_turn(contenders, rounds, torch.distributed.barrier)


def contender(accelerator: Any, evaluation: Evaluation, data: TensorDataset) -> Callable[[], None]:
    """An evaluation with one of them."""
    model = torch.nn.Linear(FEATURES, CLASSES)
    loader = accelerator.prepare(DataLoader(Rows(data), batch_size=evaluation.batch, collate_fn=tuple))

    def evaluate() -> None:
        seen = 0
        with torch.no_grad():
            for batch, targets in loader:
                found = accelerator.gather_for_metrics(outputs(evaluation.what, model(batch), targets))
                seen += len(
                    found if isinstance(found, list) else found[1] if isinstance(found, tuple) else found["targets"]
                )
        if seen != evaluation.samples:
            raise AssertionError(f"{type(accelerator)} has gathered {seen} samples of {evaluation.samples}")

    return evaluate


def outputs(what: str, scores: torch.Tensor, targets: torch.Tensor) -> Any:
    """What is gathered of a batch."""
    if what == "labels":
        return scores.argmax(-1), targets
    if what == "scores":
        return {"scores": scores, "targets": targets}
    return [(score, target) for score, target in zip(scores.argmax(-1).tolist(), targets.tolist(), strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    arguments = parser.parse_args()
    warn_if_busy()
    rows, ratios = [], {}
    for evaluation in EVALUATIONS:
        given = (evaluation, 3 if arguments.quick else 11)
        times = notebook_launcher(rank, given, num_processes=RANKS, device="cpu")[0]
        peer, ours = Spread(times["Accelerate"]), Spread(times["notebook-accel"])
        ratios[evaluation.name] = ours.over(peer)
        rows.append([evaluation.name, peer.text(), ours.text(), ratios[evaluation.name].ratio()])
    table(
        f"{SAMPLES:,} samples on {RANKS} ranks",
        ["gathered", "Accelerate, ms", "notebook-accel, ms", "notebook-accel / Accelerate"],
        rows,
    )
    for name, ratio in ratios.items():
        goal(f"time of an evaluation, notebook-accel / Accelerate, {name}", ratio.median, 1)


if __name__ == "__main__":
    main()
