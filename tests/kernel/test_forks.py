"""The notebook's process is never forked, whatever is used: it may have threads, locks, and devices open."""

from __future__ import annotations

from tests.live_notebook import Notebook

RECORD = """
import traceback

forks = []
os.register_at_fork(before=lambda: forks.append("".join(traceback.format_stack(limit=12))))
"""
FORK = """
pid = os.fork()
if not pid:
    os._exit(0)
os.waitpid(pid, 0)
len(forks)
"""
FEATURES = {
    "a launch": "notebook_launcher(join, num_processes=2, device='cpu')",
    "a group in this process": "notebook_launcher(join, num_processes=1, device='cpu', in_process=True)",
    "groups of an accelerator in this process": """
        def train():
            accelerator = Accelerator()
            model, loader = accelerator.prepare(torch.nn.Linear(1, 1), torch.utils.data.DataLoader([torch.ones(1)] * 4))
            return [float(accelerator.gather(model(batch)).sum()) for batch in loader]

        notebook_launcher(train, num_processes=1, device='cpu', in_process=True)
    """,
    "a launch in the background": """
        job = notebook_launcher(join, num_processes=2, device='cpu', block=False)
        job.result(), jobs()
    """,
    "a detached job": """
        job = notebook_launcher(int, num_processes=1, device='cpu', detach=True)
        job.result(), attach(job.id).result()
    """,
    "a failure": """
        try:
            notebook_launcher(lambda: 1 / 0, num_processes=2, device='cpu')
        except RankError:
            pass
    """,
    "a cell on ranks": "%%accelerate -n 2\nvalue = dist.get_rank()",
    "their stacks": "%accelerate stacks",
    "their values": "%accelerate pull value",
    "every cell on ranks": "%accelerate cells on",
    "a cell that runs there": "value + 1",
    "and no longer": "%accelerate cells off",
    "their end": "%accelerate stop",
    "the status": "%accelerate",
    "the jobs": "%accelerate jobs",
}


def test_nothing_forks_the_kernel(notebook: Notebook) -> None:
    notebook.check(RECORD)
    assert notebook.value(FORK) == 1, "the recorder must notice a fork"
    notebook.check("forks.clear()")
    for code in FEATURES.values():
        notebook.check(code)
    assert notebook.value("forks") == []
