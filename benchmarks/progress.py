"""What it costs a training function to be seen: bars and reports in a rank, against plain tqdm and an empty loop.

Everything is measured in real ranks of a real kernel, in rounds in which each takes its turn, and printed as ratios.
"""

from __future__ import annotations

import argparse
import json

from common import Kernel, Spread, goal, table, warn_if_busy

_CODE = """
from notebook_accel import notebook_launcher

def work(rounds, count):
    import io, json, subprocess, sys, time
    from notebook_accel import events, rank_local, report
    from tqdm import tqdm

    def timed(loop, *args):
        began = time.perf_counter()
        loop(*args)
        return (time.perf_counter() - began) / count

    def iterate(**options):
        for _ in tqdm(range(count), **options): pass

    def refresh(**options):
        bar = tqdm(total=count, **options)
        for n in range(count):
            bar.n = n
            bar.refresh()
        bar.close()

    def report_all():
        for n in range(count): report(loss=0.5, step=n)

    # What plain tqdm does in a process of its own, its bar drawn into a file.
    plain = subprocess.Popen([sys.executable, "-c", PLAIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    def ask(name, count):
        plain.stdin.write(json.dumps([name, count]) + "\\n"); plain.stdin.flush()
        return json.loads(plain.stdout.readline())

    with_sink = {**rank_local.space()}
    found = {name: [] for name in ("iterate", "plain iterate", "refresh", "plain refresh", "report", "outside")}
    for _ in range(rounds):
        found["plain iterate"].append(ask("iterate", count)); found["iterate"].append(timed(iterate))
        found["plain refresh"].append(ask("refresh", count // 20)); found["refresh"].append(timed(refresh))
        found["report"].append(timed(report_all))
        events.set_sink(None); found["outside"].append(timed(report_all)); rank_local.space().update(with_sink)
    plain.stdin.close(); plain.wait(); plain.stdout.close()
    return found
"""
_PLAIN = """
import json, os, sys, time
from tqdm import tqdm
nothing = open(os.devnull, "w")
def iterate(count):
    for _ in tqdm(range(count), file=nothing): pass
def refresh(count):
    bar = tqdm(total=count, file=nothing)
    for n in range(count):
        bar.n = n
        bar.refresh()
    bar.close()
for line in sys.stdin:
    name, count = json.loads(line)
    began = time.perf_counter()
    globals()[name](count)
    print((time.perf_counter() - began) / count, flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    arguments = parser.parse_args()
    warn_if_busy()
    measure(quick=arguments.quick)


def measure(*, quick: bool) -> None:
    """Measures, and prints what it finds."""
    rounds, count = (5, 100_000) if quick else (15, 500_000)
    with Kernel(timeout=300) as kernel:
        kernel.run(f"PLAIN = {_PLAIN!r}\n{_CODE}")
        printed = kernel.run(
            f"import json; print(json.dumps(notebook_launcher(work, ({rounds}, {count}), num_processes=1)[0]))"
        )
    found = {name: Spread(values) for name, values in json.loads(printed).items()}
    iteration = found["iterate"].over(found["plain iterate"])
    refresh = found["refresh"].over(found["plain refresh"])
    table(
        "One call in a rank, ns",
        ["", "here", "plain tqdm", "ratio"],
        [
            [
                "an iteration of a bar",
                found["iterate"].text(1e-9),
                found["plain iterate"].text(1e-9),
                iteration.ratio(),
            ],
            ["n = ...; refresh()", found["refresh"].text(1e-9), found["plain refresh"].text(1e-9), refresh.ratio()],
            ["report(), in a launch", found["report"].text(1e-9), "-", "-"],
            ["report(), outside a launch", found["outside"].text(1e-9), "-", "-"],
        ],
    )
    print()
    goal("an iteration, of plain tqdm's", iteration.median, 1.15)
    goal("report(), outside a launch", found["outside"].median * 1e6, 1, " µs")
    goal("report(), in a launch", found["report"].median * 1e6, 1, " µs")


if __name__ == "__main__":
    main()
