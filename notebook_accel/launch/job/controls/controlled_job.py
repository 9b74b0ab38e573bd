"""The methods of a job that pause and change its training while it runs."""

from __future__ import annotations

import math
import numbers
from typing import Any

from notebook_accel.errors import ConfigurationError
from notebook_accel.events import as_float
from notebook_accel.events.control import CHECKPOINT, END_AFTER_EPOCH, PAUSE, RESUME, TUNE
from notebook_accel.launch.job.controls import control_requests
from notebook_accel.launch.job.requests import number_arguments
from notebook_accel.launch.job.requests.job_handle import JobHandle
from notebook_accel.launch.job.requests.short_errors import short_errors


class ControlledJob(JobHandle):
    """A job whose training can be paused and changed, after the same step on all ranks.

    The training uses an `Accelerator`: a step ends when a prepared optimizer has stepped. Each method waits until all
    ranks have done it.
    """

    @short_errors
    def pause(self, *, timeout: float = 60.0) -> int:
        """Pauses training after the current step.

        Between two steps no collective runs, so that no timeout of torch ends the job, however long the pause; nor does
        that of the launch. The ranks keep their memory and their devices. Bars, the anatomy of a step and estimates
        leave the pause out. If the system is about to end the job, the training continues and saves its checkpoint.

        Args:
            timeout: Seconds to wait for that step to end, at most 3,600.

        Returns:
            After how many steps it is paused.

        Raises:
            ConfigurationError: It can't be paused: it doesn't use an `Accelerator`, or is paused already.
            JobEndedError: The job has ended.
            TimeoutError: The step has not ended in time; the training pauses when it does.
        """
        return control_requests.control(self, PAUSE, timeout=timeout).step

    @short_errors
    def resume(self) -> int:
        """Continues a paused training run.

        For a job that has ended before its training was finished, use `%accelerate resume`.

        Returns:
            How many steps it has done.

        Raises:
            ConfigurationError: It is not paused.
            JobEndedError: The job has ended.
        """
        return control_requests.control(self, RESUME).step

    @short_errors
    def checkpoint(self, *, timeout: float = 600.0) -> str:
        """Saves a checkpoint after one of the next steps, in the folder that the launch has for them.

        Args:
            timeout: Seconds to wait until it is written, at most 3,600.

        Returns:
            Its path.

        Raises:
            ConfigurationError: It can't be saved: training isn't in a loop over `Accelerator.epochs`, the launch has
                no folder for checkpoints, or the training is paused.
            JobEndedError: The job has ended.
            TimeoutError: It was not written in time; the training still saves it.
        """
        return control_requests.control(self, CHECKPOINT, timeout=timeout).detail

    @short_errors
    def end_after_epoch(self, *, timeout: float = 60.0) -> str:
        """Ends the loop over `Accelerator.epochs` after the current epoch; the function then continues below the loop.

        Args:
            timeout: Seconds to wait for a step to end, at most 3,600.

        Returns:
            The last epoch: `epoch 3 of 10`.

        Raises:
            ConfigurationError: The training is in no such loop.
            JobEndedError: The job has ended.
            TimeoutError: No step has ended in time; the request stands.
        """
        return control_requests.control(self, END_AFTER_EPOCH, timeout=timeout).detail

    @short_errors
    def tune(self, *, timeout: float = 60.0, **values: float) -> int:
        """Changes values that the training has made tunable, all after the same step: `job.tune(lr=0.01)`.

        Args:
            timeout: Seconds to wait for a step to end, at most 3,600.
            values: New values by the names that `Accelerator.tunable` was given.

        Returns:
            After how many steps they have changed.

        Raises:
            ConfigurationError: There is no such value, or one of them is out of range; nothing is changed.
            JobEndedError: The job has ended.
            TimeoutError: No step has ended in time; the values change when it does.
        """
        if not values:
            raise ConfigurationError("job.tune() changes nothing: give values by name, as in job.tune(lr=0.01)")
        plain = {name: _plain(name, value) for name, value in values.items()}
        return control_requests.control(self, TUNE, plain, timeout).step


def _plain(name: str, value: Any) -> float:
    """A number of Python's in place of one of NumPy's, for JSON."""
    if not number_arguments.is_number(value) or not math.isfinite(as_float(value)):
        raise ConfigurationError(f"{name}={value!r} is not a finite number")
    return int(value) if isinstance(value, numbers.Integral) else float(value)
