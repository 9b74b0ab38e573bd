"""`job.explain()` and `job.wait(until=…)` in a notebook, of jobs that it runs and of those of other kernels."""

from __future__ import annotations

from pathlib import Path

from tests.live_notebook import Notebook


def test_a_value_is_waited_for_while_the_ranks_train(notebook: Notebook, tmp_path: Path) -> None:
    notebook.check(f"""
    from notebook_accel import report

    def work(go={str(tmp_path / "go")!r}):
        for step in range(10):
            report(loss=1 / (step + 1), step=step)
        wait_for(go)

    job = notebook_launcher(work, num_processes=2, block=False)
    """)
    assert notebook.value("job.wait(40, until='loss<=0.1'), job.wait(0, until='loss<0.1')") == (True, False)
    (tmp_path / "go").touch()
    assert notebook.value("job.wait(40), job.wait(until='loss<0.1'), job.explain().findings") == (True, False, [])


def test_a_failure_is_explained_after_its_cell_and_by_another_process(notebook: Notebook) -> None:
    notebook.check("""
    def work():
        rank = join()
        print(f"rank {rank} is here")
        if rank == 1:
            raise ValueError("a bad batch")
        dist.barrier()

    job = notebook_launcher(work, num_processes=2, block=False)
    job.wait()
    """)
    text = notebook.check("print(job.explain())").stdout
    assert "\nfailed: rank 1 of 2 raised ValueError: a bad batch\nits error:\n| In[" in text
    assert "\nthe last lines of rank 1:\n| rank 1 is here" in text
    other = notebook.check("""
    import subprocess, sys
    command = [sys.executable, "-m", "notebook_accel", "explain", job.id]
    print(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    """).stdout
    assert other.strip() == text.strip()


def test_a_stall_ends_a_wait_and_is_explained(notebook: Notebook) -> None:
    notebook.check("""
    def work():
        rank = join()
        if rank == 0:
            dist.barrier()
        while rank == 1:
            time.sleep(0.01)

    job = notebook_launcher(work, num_processes=2, block=False, stall_after=0.2)
    """)
    assert notebook.value("job.wait(40, until='loss<1'), job.stalled is None, job.status.value") == (
        False,
        False,
        "running",
    )
    finding = "job.explain().findings[0]"
    kind, text = notebook.value(f"{finding}.kind, {finding}.text")
    assert kind == "stalled"
    assert "rank 0 waits in barrier at " in text
    sources = notebook.value(f"[each.source for each in {finding}.evidence]")
    assert "the stack of rank 1" in sources
    notebook.check("job.cancel(); job.wait()")
