"""What agents are answered is short: 400 tokens, at four characters each, for the usual states of a job."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from notebook_accel.events import (
    CheckpointSaved,
    Event,
    Failed,
    Frame,
    Lines,
    LiveArray,
    Location,
    OutOfMemory,
    Phase,
    PhaseChanged,
    Raised,
    Stalled,
)
from notebook_accel.jupyter.reader.job_texts import JobTexts
from notebook_accel.launch.job.job_state import Status
from tests.jupyter.conftest import RecordedJob, job, state

__all__ = ["job", "state"]

MOST = 4 * 400
TORCH = "/home/me/.venv/lib/python3.12/site-packages/torch"
FRAMES = [
    Frame("In[5]", 12, "train", "loss = criterion(model(batch), target)"),
    *(
        Frame(
            f"{TORCH}/nn/modules/module.py", 1700 + at, "_wrapped_call_impl", "return self._call_impl(*args, **kwargs)"
        )
        for at in range(8)
    ),
    Frame(f"{TORCH}/nn/modules/linear.py", 134, "forward", "return F.linear(input, self.weight, self.bias)"),
]
WARNINGS = [
    f"In[5]:{line}: UserWarning: {'this loader divides the samples in another way; ' * 3}" for line in range(12)
]


def fail(job: RecordedJob, raised: Raised, error: str, memory: OutOfMemory | None = None) -> None:
    """As a training run of several ranks fails: each with a long stack, after warnings."""
    failed: list[Event] = [Lines("stderr", WARNINGS), Failed([raised], at=job.job.started, out_of_memory=memory)]
    job.add(*((rank, event) for rank in range(2) for event in failed))
    stack = "\n".join(f'File "{each.filename}", line {each.lineno}, in {each.name}\n    {each.line}' for each in FRAMES)
    job.job.finish(Status.FAILED, error=f"both ranks raised {error}\n{stack}\n{error}")


def runs(job: RecordedJob) -> None:
    job.reach(40, 0.25)
    for name in ("accuracy", "perplexity", "learning_rate", "grad_norm"):
        job.reach(41, 0.5, name)


def stalls(job: RecordedJob) -> None:
    runs(job)
    places = [Location(rank, Phase.WAITING, "all_reduce", f"In[5] line {12 + rank}", FRAMES) for rank in range(2)]
    job.add(*((rank, PhaseChanged(Phase.WAITING, f"all_reduce at In[5] line {12 + rank}")) for rank in range(2)))
    job.job.apply(None, Stalled(places, job.job.started, mismatch="rank 1 has not called all_reduce #41"))


def fails(job: RecordedJob) -> None:
    runs(job)
    text = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x100 and 128x10)"
    fail(job, Raised("RuntimeError", text, FRAMES), text)


def runs_out_of_memory(job: RecordedJob) -> None:
    runs(job)
    text = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. " + "GPU 0 has 79 GiB in total. " * 9
    )
    arrays = [LiveArray(f"hidden_{at}", "cuda:0", 1 << 26, "float32 [4096, 4096]", FRAMES[0]) for at in range(8)]
    fail(job, Raised("OutOfMemoryError", text, FRAMES), text, OutOfMemory("cuda:0", arrays))


def is_interrupted(job: RecordedJob) -> None:
    runs(job)
    job.job.apply(None, CheckpointSaved(40))
    job.job.finish(Status.INTERRUPTED)


@pytest.mark.parametrize("happens", [runs, stalls, fails, runs_out_of_memory, is_interrupted])
def test_an_answer_is_short_and_says_what_is_the_matter(happens: Callable[[RecordedJob], None]) -> None:
    found = RecordedJob("train", checkpoint_dir="/home/me/checkpoints")
    happens(found)
    found.add()
    texts = JobTexts()
    id = found.job.id
    answers = {
        "describe": texts.describe(id),
        "explain": texts.explain(id),
        "look": texts.look(id, "loss<0.1")["text"],
    }
    texts.close()
    assert {name: len(text) for name, text in answers.items() if len(text) > MOST} == {}
    expected = {
        runs: "41%",
        stalls: "rank 1 has not called all_reduce #41",
        fails: "shapes cannot be multiplied (64x100 and 128x10)",
        runs_out_of_memory: "out of memory: both ranks raised torch.OutOfMemoryError",
        is_interrupted: f"notebook-accel resume {id}",
    }
    assert expected[happens] in answers["explain"] or happens is runs
    assert expected[happens] in answers["describe"] or happens in (runs_out_of_memory,)
