"""Values of a metric at one step or in one bin, and what is drawn of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

_MOST_DRAWN = 1e300
"""Greater values are drawn as this, since sums and differences of them might not be finite."""
_LOWER_IS_BETTER = frozenset(
    ("loss", "error", "err", "perplexity", "ppl", "mse", "mae", "rmse", "nll", "wer", "cer", "bpb")
)
_HIGHER_IS_BETTER = frozenset(
    ("accuracy", "acc", "f1", "auc", "auroc", "bleu", "psnr", "ssim", "iou", "miou", "recall", "precision")
)


class Place(NamedTuple):
    """A value and where it was reported."""

    value: float
    x: int


class Spread(NamedTuple):
    """The mean and range of a metric at one position of its chart. The mean is NaN where no value is finite."""

    x: float
    """The step, or the number of the report if the metric has no steps."""
    mean: float
    low: float
    high: float


class Mark(NamedTuple):
    """Values that no line can show."""

    x: float
    kind: str
    """`nan`, `inf` or `-inf`."""


@dataclass(slots=True)
class Values:
    """Values at one step, or in one bin."""

    first: int
    """The first step."""
    last: int
    count: int = 0
    """The number of values that are finite."""
    total: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    nan: int = 0
    """The number of values that are NaN."""
    above: int = 0
    """The number of values that are infinite."""
    below: int = 0
    """The number of values that are minus infinity."""

    def add(self, value: float) -> None:
        if math.isfinite(value):
            self.count += 1
            self.total += max(-_MOST_DRAWN, min(_MOST_DRAWN, value))
            if value < self.low:
                self.low = value
            if value > self.high:
                self.high = value
        elif value > 0:
            self.above += 1
        elif value < 0:
            self.below += 1
        else:
            self.nan += 1

    def merge(self, other: Values) -> None:
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        self.count, self.total = self.count + other.count, self.total + other.total
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.nan, self.above, self.below = (
            self.nan + other.nan,
            self.above + other.above,
            self.below + other.below,
        )

    def copy(self) -> Values:
        # A third of the time that `dataclasses.replace` takes: each drawing of a chart copies hundreds.
        return Values(
            *(self.first, self.last, self.count, self.total, self.low, self.high, self.nan, self.above, self.below)
        )

    @property
    def mean(self) -> float:
        """The mean: NaN or infinite if a value is."""
        if self.nan or (self.above and self.below):
            return math.nan
        if self.above or self.below:
            return math.inf if self.above else -math.inf
        return self.finite_mean

    @property
    def finite_mean(self) -> float:
        """The mean of the finite values; NaN if there are none."""
        if not self.count:
            return math.nan
        # Within the values, so that rounding doesn't make a constant metric look as if it changed.
        return min(max(self.total / self.count, _drawable(self.low)), _drawable(self.high))

    @property
    def is_finite(self) -> bool:
        return not (self.nan or self.above or self.below)

    def spread(self) -> Spread:
        low, high = (self.low, self.high) if self.count else (math.nan, math.nan)
        return Spread((self.first + self.last) / 2, self.finite_mean, *map(_drawable, (low, high)))

    def marks(self) -> list[Mark]:
        x = (self.first + self.last) / 2
        found = {"nan": self.nan, "inf": self.above, "-inf": self.below}
        return [Mark(x, kind) for kind, count in found.items() if count]


def better(name: str) -> int:
    """1 if greater values of a metric are better, -1 if lower ones are, 0 if its name does not tell."""
    words = "".join(letter if letter.isalnum() else " " for letter in name.lower()).split()
    for word in reversed(words):
        if word in _LOWER_IS_BETTER:
            return -1
        if word in _HIGHER_IS_BETTER:
            return 1
    return 0


def _drawable(value: float) -> float:
    return max(-_MOST_DRAWN, min(_MOST_DRAWN, value)) if not math.isnan(value) else value
