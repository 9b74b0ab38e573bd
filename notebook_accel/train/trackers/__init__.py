"""Experiment trackers: one contract (`base.py`), a file for each service, and the `Logbook` that logs to all of them.

To add a tracker: a file here with a subclass of `GeneralTracker` (of `RunTracker` in `runs.py` if the service opens
a run with `init(project=...)`), one row in `TRACKERS` in `logbook.py`, and its name in `LoggerType`. The file is
imported only when its tracker is chosen, and the service's package only when the tracker starts.
"""

from notebook_accel.train.trackers.base import GeneralTracker, on_main_process
from notebook_accel.train.trackers.logbook import Logbook

__all__ = ["GeneralTracker", "Logbook", "on_main_process"]
