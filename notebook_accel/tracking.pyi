# Written by scripts/generate from notebook_accel/exports.py.
from notebook_accel.train.options.enums import LoggerType as LoggerType
from notebook_accel.train.ranks.state import PartialState as PartialState
from notebook_accel.train.tensors.pytree import listify as listify
from notebook_accel.train.trackers.active_trackers import filter_trackers as filter_trackers, get_available_trackers as get_available_trackers, register_tracker_class as register_tracker_class
from notebook_accel.train.trackers.aim import AimTracker as AimTracker
from notebook_accel.train.trackers.base import GeneralTracker as GeneralTracker, on_main_process as on_main_process
from notebook_accel.train.trackers.clearml import ClearMLTracker as ClearMLTracker
from notebook_accel.train.trackers.comet import CometMLTracker as CometMLTracker
from notebook_accel.train.trackers.dvclive import DVCLiveTracker as DVCLiveTracker
from notebook_accel.train.trackers.mlflow import MLflowTracker as MLflowTracker
from notebook_accel.train.trackers.swanlab import SwanLabTracker as SwanLabTracker
from notebook_accel.train.trackers.tensorboard import TensorBoardTracker as TensorBoardTracker
from notebook_accel.train.trackers.trackio import TrackioTracker as TrackioTracker
from notebook_accel.train.trackers.wandb import WandBTracker as WandBTracker
