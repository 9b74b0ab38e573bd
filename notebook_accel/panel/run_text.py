"""Facts about the run for the panel's header, and how it is getting on for the title of the browser's tab."""

from __future__ import annotations

import math
import time

from notebook_accel.launch.job import progress
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.progress import Overview
from notebook_accel.launch.job.text import percent, shortened, value

_TEXT_LIMIT = 600
_NAME_LIMIT = 24


def about(job: Job) -> dict[str, str]:
    """What is known of the run, by name; without what is not known."""
    launched = job.launched
    found = {
        "Call": launched.call or job.name,
        "Began": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(job.started)),
        "Job": job.id,
        "Seed": "" if job.seed is None else str(job.seed),
        "Versions": launched.versions,
        "Devices": job.hardware,
    }
    return {name: shortened(text, _TEXT_LIMIT) for name, text in found.items() if text}


def in_short(job: Job, found: Overview) -> str:
    """`57% · loss 0.21`."""
    parts = [percent(found.median)] if found.fractions else []
    name = progress.main_metric(progress.metric_names(job))
    values = [state.metrics[name] for state in job.ranks if name is not None and name in state.metrics]
    if values:
        mean = sum(values) / len(values)
        parts.append(f"{shortened(str(name), _NAME_LIMIT)} {value(mean) if math.isfinite(mean) else mean}")
    if job.is_paused:
        parts.insert(0, "paused")
    return " · ".join(parts) or progress.status(job)
