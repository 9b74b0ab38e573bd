"""Rules that act on training runs while these run."""

from __future__ import annotations

from pathlib import Path

from tests.live_notebook import Notebook

TRAIN = """
def train(bad):
    import time, torch
    accelerator = Accelerator()
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.utils.data.TensorDataset(torch.zeros(100000, 3))
    loader = torch.utils.data.DataLoader(data, batch_size=1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in accelerator.epochs(3):
        for step, (inputs,) in enumerate(loader):
            loss = model(inputs).square().sum()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            is_bad = step == bad and accelerator.process_index == 1
            report(loss=float("nan") if is_bad else 1.0, step=step)
            time.sleep(0.01)

def count(go):
    import os, time
    step = 0
    while not os.path.exists(go):
        step += 1
        report(loss=step, step=step)
        time.sleep(0.01)
    return step
"""


def test_a_training_pauses_when_a_rank_has_nan(notebook: Notebook) -> None:
    notebook.check(TRAIN)
    rules = "[when('loss', is_nan=True, do='pause'), when('val/loss', patience=3, do='end_after_epoch')]"
    notebook.check(f"job = notebook_launcher(train, (5,), num_processes=2, device='cpu', rules={rules}, block=False)")
    notebook.check("while {state.phase.value for state in job.ranks} != {'paused'}: time.sleep(0.01)")
    notebook.check("while not job.changes: time.sleep(0.01)")
    met = "rule 1: if loss is NaN: pause (met: loss is NaN at step 5 on rank 1)"
    assert met in notebook.check("%accelerate rule").text
    notebook.check("from notebook_accel.launch.job import describe")
    assert met in notebook.value("describe.notices(job)")
    assert (
        "has rule 3: if loss is above 0.5 for 2 steps: say so"
        in notebook.check("%accelerate rule loss --above 0.5 --for-steps 2").text
    )
    assert "no longer has rule 2" in notebook.check("%accelerate rule --remove 2").text
    waits = notebook.begin("job.result()")
    notebook.read_until(waits, "as a rule says (loss is NaN at step 5 on rank 1). This cell waits for it")
    notebook.interrupt()
    assert notebook.finish(waits).error == "KeyboardInterrupt"
    notebook.check("job.resume()")
    notebook.check("while not job.rule_changes[3].met: time.sleep(0.01)")
    notebook.check("job.cancel()")
    assert notebook.run("job.result()").error == "JobCancelledError"
    # Another process reads the same from the journal.
    notebook.check("from notebook_accel.launch.driver.follower import Follower")
    notebook.check("from notebook_accel.launch.journal import records")
    assert notebook.value("Follower(records.find(job.id, '')).job.rule_changes == job.rule_changes")


def test_a_rule_stops_a_launch_that_the_cell_waits_for(notebook: Notebook, tmp_path: Path) -> None:
    """Without an Accelerator, too."""
    notebook.check(TRAIN)
    ran = notebook.run(
        f"notebook_launcher(count, ({str(tmp_path / 'go')!r},), num_processes=2, "
        "rules=[when('loss', above=10, for_steps=3, do='stop')])"
    )
    assert ran.error == "JobCancelledError"
    assert "count() was stopped by its rule after" in ran.error_text
    assert "loss is 13, above 10, at step 13 (13 on ranks 0-1), for 3 steps" in ran.error_text


def test_a_rule_calls_a_function_of_the_notebook(notebook: Notebook, tmp_path: Path) -> None:
    notebook.check(TRAIN)
    go = tmp_path / "go"
    notebook.check("called = []\ndef note(met): called.append((met.metric, met.step, list(met.ranks), met.job.id))")
    notebook.check("def fail(met): raise ValueError('broken')")
    notebook.check(f"job = notebook_launcher(count, ({str(go)!r},), num_processes=1, block=False)")
    notebook.check("job.add_rule(when('loss', above=0, do=note)), job.add_rule(when('loss', above=0, do=fail))")
    notebook.check("while not (called and job.rule_changes[2].met): time.sleep(0.01)")
    metric, step, ranks, job = notebook.value("called[0]")
    assert (metric, ranks, job) == ("loss", [0], notebook.value("job.id"))
    assert step > 0
    go.touch()
    notebook.check("job.result()")
    assert "so a rule can't be added to it" in notebook.run("job.add_rule(when('loss', above=0))").error_text


def test_rules_act_on_a_detached_job(notebook: Notebook, tmp_path: Path) -> None:
    """With a function that is pickled; and one that is added from here, without a function."""
    notebook.check(TRAIN)
    go, seen = tmp_path / "go", tmp_path / "seen"
    notebook.check(f"from pathlib import Path\ndef note(met): Path({str(seen)!r}).write_text(met.text)")
    notebook.check(
        f"job = notebook_launcher(count, ({str(go)!r},), num_processes=1, detach=True, "
        "rules=[when('loss', above=3, do=note)])"
    )
    notebook.check(f"while not Path({str(seen)!r}).exists(): time.sleep(0.01)")
    assert "another process runs count()" in notebook.run("job.add_rule(when('loss', above=0, do=note))").error_text
    assert notebook.value("job.add_rule(when('loss', above=0, do='stop'))") == 2
    assert "was stopped by its rule" in notebook.run("job.result()").error_text
