"""What it costs a training function that its waits are noticed and its loaders' batches counted.

In real ranks of a real kernel: the processor time of a step with and without stack samples, in turn; then a single
sample.
"""

from __future__ import annotations

import argparse
import json

from common import Kernel, Spread, goal, table, warn_if_busy

_CODE = """
from notebook_accel import notebook_launcher

def work(rounds, steps, batches):
    import threading, time, torch, torch.distributed as dist
    from notebook_accel import Accelerator, events, rank_local
    from notebook_accel.launch.rank.stacks.collective_wait import WaitDetector

    accelerator = Accelerator(cpu=True)
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    loader = torch.utils.data.DataLoader(torch.randn(batches), batch_size=1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    x, one, look = torch.randn(64, 256), torch.ones(1), WaitDetector.sample
    with_sink = {**rank_local.space()}
    ready = [torch.ones(1)] * batches

    def step():
        optimizer.zero_grad()
        accelerator.backward(model(x).square().mean())
        optimizer.step()

    def timed(call, count):
        dist.barrier()
        began = time.process_time()
        for _ in range(count): call()
        return (time.process_time() - began) / count

    def counted(is_inside):
        from notebook_accel.train.ranks.step_observers import LoaderBars
        if not is_inside: events.set_sink(None)
        began = time.perf_counter()
        for _ in LoaderBars().batches(loader, iter(ready)): pass
        spent = (time.perf_counter() - began) / batches
        rank_local.space().update(with_sink)
        return spent

    names = ("step", "step, unsampled", "all_reduce", "all_reduce, unsampled", "inside", "outside")
    found = {name: [] for name in names}
    methods = [("", look), (", unsampled", lambda self, now: [])]
    for _ in range(rounds):
        methods.reverse()
        for suffix, method in methods:
            WaitDetector.sample = method
            found["step" + suffix].append(timed(step, steps))
            found["all_reduce" + suffix].append(timed(lambda: dist.all_reduce(one), 5 * steps))
        found["inside"].append(counted(True))
        found["outside"].append(counted(False))
    WaitDetector.sample = look

    def look_from_beside(spent):
        waiting = WaitDetector(threading.main_thread().ident)
        for now in range(2000):
            began = time.thread_time()
            waiting.sample(float(now))
            spent.append(time.thread_time() - began)
    found["look"] = []
    beside = threading.Thread(target=look_from_beside, args=(found["look"],))
    beside.start()
    while beside.is_alive(): time.sleep(0)
    return found
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds, steps, batches = (9, 200, 100_000) if parser.parse_args().quick else (61, 300, 100_000)
    warn_if_busy()
    with Kernel(timeout=600) as kernel:
        kernel.run(_CODE)
        printed = kernel.run(
            "import json; print(json.dumps(notebook_launcher("
            f"work, ({rounds}, {steps}, {batches}), num_processes=2, device='cpu')[0]))"
        )
    found = {name: Spread(values) for name, values in json.loads(printed).items()}
    step = found["step"].over(found["step, unsampled"])
    reduce = found["all_reduce"].over(found["all_reduce, unsampled"])
    table(
        "Processor time in a rank, µs",
        ["", "sampled", "without", "ratio"],
        [
            ["a step of DDP", found["step"].text(1e-6), found["step, unsampled"].text(1e-6), step.ratio()],
            [
                "a small all_reduce",
                found["all_reduce"].text(1e-6),
                found["all_reduce, unsampled"].text(1e-6),
                reduce.ratio(),
            ],
            ["one sample, of ten a second", found["look"].text(1e-6), "-", "-"],
            ["a batch, counted", found["inside"].text(1e-6), found["outside"].text(1e-6), "-"],
        ],
    )
    print()
    goal("a step, compared with one that is not sampled", step.median, 1.01)
    goal("a batch, counted", (found["inside"].median - found["outside"].median) * 1e6, 1, " µs")


if __name__ == "__main__":
    main()
