"""Experiment trackers: one contract (`base.py`), a file for each service, and `TrackerGroup`, which uses them all.

To add a tracker: a file here with a subclass of `RunTracker`, one row in `TRACKERS` in `active_trackers.py`, and its
name in `LoggerType` in `train/options/enums.py`. The file is imported only when its tracker is chosen, and the
service's package only when the tracker starts.
"""
