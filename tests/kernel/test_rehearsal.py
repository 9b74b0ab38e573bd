"""Rehearsals in a real kernel."""

from __future__ import annotations

from pathlib import Path

from tests.live_notebook import Notebook

TRAIN = """
def train(folder, batch_size=8, epochs=3):
    accelerator = Accelerator(cpu=True, log_with="tensorboard", project_dir=f"{folder}/project")
    accelerator.init_trackers("digits", {"batch_size": batch_size})
    accelerator.get_tracker("tensorboard")
    if batch_size > 20:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
    data = torch.utils.data.TensorDataset(torch.randn(1600, 64))
    model = torch.nn.Linear(64, 8)
    model, optimizer, data = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), 0.01), torch.utils.data.DataLoader(data, batch_size=batch_size)
    )
    for epoch in accelerator.epochs(epochs):
        for (inputs,) in data:
            accelerator.backward(model(inputs).square().mean())
            optimizer.step()
            optimizer.zero_grad()
            accelerator.log({"loss": 1.0})
            accelerator.save_state(f"{folder}/state")
            accelerator.save_model(model, f"{folder}/model")
            accelerator.save({"epoch": epoch}, f"{folder}/file")
    open(f"{folder}/went on", "w").close()

def plain(steps):
    model = torch.nn.Linear(64, 8)
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(steps):
        if not rehearsing():
            raise ValueError("this writes")
        model(torch.ones(2, 64)).sum().backward()
        optimizer.step()

def fail():
    raise ValueError("it fails")
"""


def test_a_rehearsal_tells_what_fits_and_how_fast_and_writes_nothing(notebook: Notebook, tmp_path: Path) -> None:
    notebook.check(TRAIN)
    call = (
        f"rehearse(train, vary={{'batch_size': [8, 16, 32]}}, args=({str(tmp_path)!r},), checkpoint={str(tmp_path)!r}"
    )
    shown = notebook.check(f"found = {call}, num_processes=2); found").value
    assert shown is not None
    assert shown.startswith("train(): fits: batch_size=8, batch_size=16; out of memory: batch_size=32; fastest: ")
    rows = notebook.value("[(row.fits, row.step, row.epoch, row.run, row.host_peak, row.note) for row in found.rows]")
    for (fits, step, epoch, run, host, note), batches in zip(rows, (100, 50), strict=False):
        assert fits
        assert not note
        assert abs(epoch / step - batches) < 1e-6 * batches
        assert abs(run / epoch - 3) < 1e-6
        assert host > 2**20
    assert rows[2][:4] == (False, None, None, None)
    assert "CUDA out of memory" in rows[2][5]
    assert list(tmp_path.iterdir()) == []
    assert notebook.value("rehearsing()") is False


def test_a_plain_loop_is_rehearsed_too(notebook: Notebook) -> None:
    notebook.check(TRAIN)
    notebook.check("found = rehearse(plain, args=(10**9,), num_processes=1, steps=3)")
    assert notebook.value("found.rows[0].fits, found.rows[0].note, found.rows[0].step > 0") == (True, "", True)
    assert notebook.value("rehearse(plain, args=(3,), num_processes=1).rows[0].note") == (
        "the function returned after 2 measured steps"
    )
    assert notebook.value("rehearse(len, args=((),), num_processes=1).verdict") == "len(): it fits"


def test_the_largest_batch_is_searched_for(notebook: Notebook, tmp_path: Path) -> None:
    notebook.check(TRAIN)
    notebook.check("vary = largest('batch_size', up_to=100, at_least=8)")
    notebook.check(f"found = rehearse(train, vary=vary, args=({str(tmp_path)!r},), num_processes=1)")
    assert notebook.value("[(row.parameters['batch_size'], row.fits) for row in found.rows]") == [
        (8, True), (16, True), (20, True), (22, False), (24, False), (32, False)
    ]  # fmt: skip


def test_other_failures_are_raised(notebook: Notebook) -> None:
    notebook.check(TRAIN)
    assert notebook.run("rehearse(fail, num_processes=1)").error == "RankError"
    for call, said in {
        "rehearse(plain, steps=0)": "steps=0: it must be at least 1",
        "rehearse(plain, vary={'lr': [1]})": "plain() can't be called with lr as keyword arguments",
        "rehearse(plain, name='x')": "rehearse() sets name of each launch itself",
        "rehearse(plain, block=False)": "rehearse() sets block of each launch itself",
        "rehearse(plain, args=(3,), stps=2)": "did you mean steps?",
    }.items():
        assert said in notebook.run(call).error_text, call
