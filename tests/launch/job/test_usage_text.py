"""What a rank uses, as text."""

from __future__ import annotations

from notebook_accel.events import GpuUsage, Heartbeat, Phase, PhaseChanged, ProcessUsage, Returned
from notebook_accel.launch.job import describe, resources
from notebook_accel.launch.job.job import Job
from notebook_accel.panel import html_page
from notebook_accel.panel.panel_state import StateMaker


def a_job(size: int = 2) -> Job:
    job = Job("train", 0, size)
    job.started -= 100
    for rank in range(size):
        job.apply(rank, PhaseChanged(Phase.RUNNING))
        job.apply(rank, Heartbeat(2**29))
    return job


def test_a_rank_on_the_cpu_has_its_cpu_time_and_that_of_its_workers() -> None:
    job = a_job()
    state = job.ranks[0]
    assert (resources.brief(state), resources.facts(state), describe.load(state)) == ("", {}, "512 MB")
    job.apply(0, ProcessUsage(180.4, 2**29))
    assert resources.brief(state) == describe.load(state) == "CPU 180%, 512 MB"
    job.apply(0, ProcessUsage(180.4, 2**29, 3, 95.0, 2**30))
    assert resources.facts(state) == {"CPU": "180% of a core", "child processes": "3: 95% of a core, 1.0 GB"}
    assert "CPU 180%, 512 MB" in html_page.draw(job)
    job.apply(0, Returned())
    assert (resources.brief(state), resources.facts(state), describe.load(state)) == ("", {}, "512 MB")


def test_a_rank_with_a_gpu_has_what_the_driver_measures() -> None:
    job = a_job()
    job.apply(0, Heartbeat(2**29, 2**31, 2**33))
    job.apply(0, ProcessUsage(98, 2**29))
    job.apply(0, GpuUsage(87, 41 * 2**30, 80 * 2**30, 66, 310, 700, ["power limit"]))
    state = job.ranks[0]
    assert resources.brief(state) == "GPU 87%, 41.0 GB"
    assert describe.load(state) == "CPU 98%, GPU 87%, 512 MB, GPU 2.0 GB"
    assert resources.facts(state) == {
        "CPU": "98% of a core",
        "GPU": "87% busy",
        "GPU memory": "41.0 GB of 80.0 GB",
        "temperature": "66 °C",
        "power": "310 W of 700 W",
        "clock reduced by": "power limit",
    }
    assert resources.warning(state) == ""
    job.apply(0, GpuUsage(memory_used=2**30))  # a slice, or a driver that measures less
    assert (resources.brief(state), describe.load(state)) == ("GPU 1.0 GB", "CPU 98%, 512 MB, GPU 2.0 GB")


def test_what_is_wrong_with_a_gpu_is_said_in_a_sentence() -> None:
    job = a_job()
    hot = GpuUsage(87, temperature=91, throttled=["temperature"])
    job.apply(0, hot)
    job.apply(1, GpuUsage(87, errors={"PCIe replays": 12, "NVLink CRC errors": 1}))
    first = "The GPU runs below its clock rate because it is too hot (91 °C); check its cooling."
    assert resources.warning(job.ranks[0]) == first
    assert resources.warning(job.ranks[1]) == (
        "PCIe replays have risen by 12 since it was first shown here: transfers were repeated, which makes them slow; "
        "check how the GPU is seated. NVLink CRC errors have risen by 1 since it was first shown here: the link "
        "between GPUs had to repeat data, which makes collectives slow; have it checked."
    )
    state = StateMaker(job).whole()
    assert (state["ranks"]["0"]["warning"], state["head"]["note"]) == (first, "")
    assert f"Rank 0: {first}" in describe.describe(job)
    assert f"Rank 0: {first}" in html_page.draw(job)
    job = a_job(20)  # a grid has no rows
    for rank in (3, 7):
        job.apply(rank, hot)
    assert StateMaker(job).whole()["head"]["note"] == f"Rank 3: {first}"
