"""Experiment trackers: one contract, and a file for each service. Their packages are imported when they are started."""

from notebook_accel.train.trackers.base import GeneralTracker, on_main_process
from notebook_accel.train.trackers.logbook import Logbook

__all__ = ["GeneralTracker", "Logbook", "on_main_process"]
