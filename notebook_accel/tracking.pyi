# Written by scripts/generate from notebook_accel/exports.py.

from notebook_accel.train.options.enums import (
    LoggerType,
)
from notebook_accel.train.ranks.state import (
    PartialState,
)
from notebook_accel.train.tensors.pytree import (
    listify,
)
from notebook_accel.train.trackers import (
    GeneralTracker,
    filter_trackers,
    get_available_trackers,
    on_main_process,
    register_tracker_class,
)
from notebook_accel.train.trackers.comet import (
    CometMLTracker,
)
from notebook_accel.train.trackers.mlflow import (
    MLflowTracker,
)
from notebook_accel.train.trackers.tensorboard import (
    TensorBoardTracker,
)
from notebook_accel.train.trackers.trackio import (
    TrackioTracker,
)
from notebook_accel.train.trackers.wandb import (
    WandBTracker,
)

__all__ = [
    "CometMLTracker",
    "GeneralTracker",
    "LoggerType",
    "MLflowTracker",
    "PartialState",
    "TensorBoardTracker",
    "TrackioTracker",
    "WandBTracker",
    "filter_trackers",
    "get_available_trackers",
    "listify",
    "on_main_process",
    "register_tracker_class",
]
