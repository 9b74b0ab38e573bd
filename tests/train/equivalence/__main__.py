"""Runs programs: `python -m tests.train.equivalence --programs 1000 --seed 7 [--library accelerate]`."""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import random
import sys
import time
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.train.equivalence.drawing import programs
from tests.train.equivalence.program import ACCELERATES, OURS, STRATEGIES, Program
from tests.train.equivalence.ranks import Pool
from tests.train.equivalence.verdict import Verdict, judge


class Found(Exception):
    """A program that is wrong."""


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.train.equivalence", description=__doc__)
    parser.add_argument("--programs", type=int, default=100, help="how many")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="which; by default any")
    parser.add_argument("--library", choices=(OURS, ACCELERATES), default=OURS, help="what trains them")
    parser.add_argument("--strategy", choices=STRATEGIES, help="how ranks share the work; by default in all ways")
    parser.add_argument("--count", action="store_true", help="count what is wrong, instead of ending with the first")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="what all programs have")
    options = parser.parse_args()
    fixed = {name: _value(text) for name, _, text in (each.partition("=") for each in options.set)}
    import torch

    torch.set_num_threads(1)
    print(f"{options.programs} programs of seed {options.seed}, with {options.library}", flush=True)
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    last: list[tuple[Program, Verdict]] = []
    pool, begun = Pool(), time.monotonic()

    @seed(options.seed)
    @settings(
        max_examples=options.programs,
        deadline=None,
        database=None,
        phases=[Phase.generate] if options.count else [Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(programs([options.strategy], fixed) if options.strategy else programs(fixed=fixed))
    def run(program: Program) -> None:
        verdict = judge(pool, program, options.library)
        counts[verdict.kind] += 1
        if counts.total() % 500 == 0:
            print(f"{counts.total()} in {time.monotonic() - begun:.0f} s: {dict(counts)}", flush=True)
        if verdict.kind != "equal":
            reasons[f"{verdict.kind}: {verdict.reason.strip().splitlines()[-1][:150]}"] += 1
        if not verdict.is_good:
            last.append((program, verdict))
            if options.count:
                print(f"{program}\n  {verdict.kind}: {verdict.reason[-1000:]}", flush=True)
            else:
                raise Found

    notes = io.StringIO()  # launches say that others run beside them
    try:
        with contextlib.redirect_stderr(notes):
            run()
    except Found:
        program, verdict = last[-1]
        print(f"{program}\n{verdict.kind}: {verdict.reason}\n\n{program.script(options.library)}")
    finally:
        pool.close()
    print(f"{counts.total()} programs in {time.monotonic() - begun:.0f} s")
    for kind, count in counts.most_common():
        print(f"{count:6} {kind}")
    for reason, count in reasons.most_common():
        print(f"{count:6} {reason}")
    return 1 if last else 0


if __name__ == "__main__":
    sys.exit(main())
