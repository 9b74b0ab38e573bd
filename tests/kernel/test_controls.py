"""A training run that is paused, tuned, saved and ended early while it runs in the background."""

from __future__ import annotations

import re
from pathlib import Path

from tests.live_notebook import Notebook

TRAIN = """
def train(go):
    import os, time, torch
    accelerator = Accelerator()
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.utils.data.TensorDataset(torch.randn(800, 3))
    loader = torch.utils.data.DataLoader(data, batch_size=1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    seen, steps = [], 0
    rate = accelerator.tunable("lr", 0.1, low=0, on_change=lambda value: seen.append((steps + 1, value)))
    for epoch in accelerator.epochs(3):
        for (inputs,) in loader:
            accelerator.backward(model(inputs).square().sum())
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
            time.sleep(0 if os.path.exists(go) else 0.05)
    return seen, epoch, rate.value

def plain(go):
    import os, time
    while not os.path.exists(go):
        time.sleep(0.01)
"""


def test_a_training_is_paused_tuned_saved_and_ended(notebook: Notebook, tmp_path: Path) -> None:
    """Takes a while, since it launches three times: the second launch continues the first, the last can't be paused."""
    notebook.check(TRAIN)
    go, folder = tmp_path / "go", tmp_path / "checkpoints"
    launch = f"notebook_launcher(train, ({str(go)!r},), num_processes=2, device='cpu', checkpoint={str(folder)!r}"
    notebook.check(f"job = {launch}, timeout=3600, block=False)")
    notebook.check("while not (job.controls and not any(job.controls.refusals.values())): time.sleep(0.01)")
    shown = notebook.check("step = job.pause(); step").value
    step = notebook.value("int(step)")
    assert shown == f"after step {step}"
    assert re.search(
        r": train\(\) paused, .*<Rank 0: paused, .*process \d+", notebook.check("print(job, job.ranks)").text
    )
    assert notebook.value("job.is_paused, [state.phase.value for state in job.ranks]") == (True, ["paused"] * 2)
    notebook.check("from notebook_accel.launch.job import describe")
    assert notebook.value("describe.headline(job)").startswith("train() on 2 ranks: paused")
    for asked, what in {"checkpoint": "save a checkpoint", "profile": "profile its steps"}.items():
        assert notebook.run(f"job.{asked}()").error_text.endswith(f"it is paused; resume it to {what}")
    assert "is not a finite number" in notebook.run("job.tune(lr=10**400)").error_text
    assert notebook.value("int(job.tune(lr=0.01))") == step
    assert "lr must be at least 0, not -1" in notebook.run("job.tune(lr=-1)").error_text
    before = notebook.value("list(job.ranks[0].bars.values())[0].elapsed")
    notebook.check("time.sleep(1.5)")
    assert f"train() continues after step {step}" in notebook.check("%accelerate resume").text
    path = Path(notebook.value("saved = job.checkpoint(); saved"))
    assert path.parent == folder
    assert (path / "tunables.pkl").is_file()
    elapsed, whole = notebook.value("list(job.ranks[0].bars.values())[0].elapsed, job.seconds")
    assert elapsed - before < whole - 1.5
    assert "ends after epoch 1 of 3" in notebook.check("%accelerate end-after-epoch").text
    go.touch()
    assert notebook.value("job.result()") == [([(step, 0.01)], 0, 0.01)] * 2
    lines = notebook.value("describe.notices(job)")
    assert any(line.startswith("paused for") for line in lines)
    assert f"lr 0.1 → 0.01 after step {step}" in lines
    # Another process reads the same from the journal, and the next launch has the value of the checkpoint.
    notebook.check("from notebook_accel.launch.driver.follower import Follower")
    notebook.check("from notebook_accel.launch.journal import records")
    assert notebook.value("Follower(records.find(job.id, '')).job.changes == job.changes")
    assert notebook.value(f"{launch})")[0][2] == 0.01
    refused = (
        f"job = notebook_launcher(plain, ({str(tmp_path / 'end')!r},), num_processes=1, name='plain one', block=False)"
    )
    notebook.check(refused)
    assert "no rank has one" in notebook.run("job.pause()").error_text
    notebook.check("while jobs()[0].id != job.id: time.sleep(0.01)")  # until it is recorded
    assert notebook.value("jobs()[0].title, job.title") == ("plain one", "plain one")
    (tmp_path / "end").touch()
    notebook.check("job.result()")
