"""Events: the messages between a rank and its driver, and what is recorded of a job.

Each event is a frozen dataclass. The sockets, the journal, a job's state and the views all use these same objects.

    base.py      ─ `Event`, and the types that events share
    ranks.py     ─ what a rank reports: output, bars, metrics, phases, its result or failure; what it uses
    reports.py   ─ many reports of metrics, packed
    jobs.py      ─ what the driver records about a job, or about a rank from outside
    requests.py  ─ what is sent to a rank, and its replies to requests
    control.py   ─ pausing and changing a training run, step by step the same on all ranks
    items.py     ─ the items of a map, and what ranks have made of them
    rules.py     ─ what a job does by itself once a metric meets a condition
    encoding.py  ─ events as JSON objects with binary blobs, and back
    emit.py      ─ how code on a rank emits an event without knowing how the rank was launched

To add an event: write its class, with a new `kind`, in the file of its sender. It can then be imported from here, and
`encoding.py` finds it; a field that JSON does not have needs a row in `NESTED_FIELDS`. The state that it changes
applies it: `launch/job/rank_state.py` for a rank, `launch/job/job_state.py` for the whole job.
"""

from notebook_accel.events.base import *
from notebook_accel.events.control import *
from notebook_accel.events.emit import *
from notebook_accel.events.encoding import *
from notebook_accel.events.items import *
from notebook_accel.events.jobs import *
from notebook_accel.events.ranks import *
from notebook_accel.events.reports import *
from notebook_accel.events.requests import *
from notebook_accel.events.rules import *
