"""`notebook_launcher`: a function from a cell, run on every rank."""

from __future__ import annotations

import contextvars
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from notebook_accel import config as configuration
from notebook_accel import hardware
from notebook_accel.errors import LaunchError, NotebookAccelError
from notebook_accel.events import AttemptStarted, Returned
from notebook_accel.launch import engines, failure, frontend, payload, plan
from notebook_accel.launch.engines.base import Engine, GroupSpec
from notebook_accel.launch.job import Job, Status
from notebook_accel.launch.output import Output
from notebook_accel.launch.payload import Payload
from notebook_accel.launch.plan import Plan
from notebook_accel.launch.run import Attempt, Ending, Run
from notebook_accel.launch.stopping import Reason, StopRequests, interrupts


def notebook_launcher(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    num_processes: int | None = None,
    mixed_precision: str = "no",
    use_port: str | int = "29500",
    master_addr: str = "127.0.0.1",
    node_rank: int = 0,
    num_nodes: int = 1,
    rdzv_backend: str = "static",
    rdzv_endpoint: str = "",
    rdzv_conf: Mapping[str, Any] | None = None,
    rdzv_id: str = "none",
    max_restarts: int = 0,
    monitor_interval: float = 0.1,
    log_line_prefix_template: str | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    gpus: Sequence[int] | None = None,
    device: str | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    block: bool = True,
) -> Any:
    """Runs `function(*args, **kwargs)` on several ranks, and returns what each of them returned.

    The function may be defined in a cell, and may use whatever the notebook has defined: it is pickled by value, and
    each rank works on copies. Output appears below the cell, labelled by rank. The positional parameters are those of
    Hugging Face Accelerate's function of the same name.

    Args:
        function: What to run. Any callable that cloudpickle can pickle.
        args: Its positional arguments.
        num_processes: Ranks on this machine. By default one for each accelerator, else one for each physical core up to
            4.
        mixed_precision: `no`, `fp16`, `bf16` or `fp8`: the default of every `Accelerator` on the ranks.
        use_port: The port on which the ranks meet. With one machine, 29500 stands for any free port.
        master_addr: With several machines, the address of the one with `node_rank=0`.
        node_rank: Which of the machines this is, from 0.
        num_nodes: How many machines take part. Each makes the same call, with its own `node_rank`, and gets its own
            ranks'
            results.
        rdzv_backend: Only `static`: the meeting point is known beforehand.
        rdzv_endpoint: `host:port`, instead of `master_addr` and `use_port`.
        rdzv_conf: `{"timeout": seconds}` to wait for the other machines; 300 by default.
        rdzv_id: A name of the run; machines join only with the same one.
        max_restarts: How often the whole group is started again after a failure.
        monitor_interval: Seconds between two signs of life of each rank.
        log_line_prefix_template: The label of output lines; may use `${rank}`, `${local_rank}` and `${role_name}`.
        kwargs: The function's keyword arguments.
        gpus: Which GPUs to use, one entry for each rank: numbers as the notebook sees them. A GPU named twice is
            shared.
        device: `cpu`, `cuda` or `mps`, where the default is not wanted.
        env: Environment variables for the ranks, beside the notebook's.
        timeout: Seconds after which the ranks are ended, and the error shows where each of them was.
        block: With `False`, returns a `Job` at once, and the notebook stays free.

    Returns:
        A list with the value of each rank, tensors on the CPU; or `None` if all returned `None`. With `block=False` a
        `Job`.

    Raises:
        ConfigurationError: An argument cannot work.
        HardwareError: There are fewer devices than were asked for.
        PayloadError: The function or an argument cannot be pickled.
        LaunchError: The ranks could not be started.
        RankError: A rank failed; its exception is the `__cause__`.
        RankTimeoutError: `timeout` has passed.
        KeyboardInterrupt: The notebook was interrupted. Ranks get one too, and 5 seconds to end.
    """
    settings = configuration.from_call(
        num_processes=num_processes,
        mixed_precision=mixed_precision,
        use_port=use_port,
        master_addr=master_addr,
        node_rank=node_rank,
        num_nodes=num_nodes,
        rdzv_backend=rdzv_backend,
        rdzv_endpoint=rdzv_endpoint,
        rdzv_conf=rdzv_conf,
        rdzv_id=rdzv_id,
        max_restarts=max_restarts,
        monitor_interval=monitor_interval,
        log_line_prefix_template=log_line_prefix_template,
        gpus=gpus,
        device=device,
        env=env,
        timeout=timeout,
    )
    call = configuration.check_call(function, args, kwargs)
    open_view = frontend.current.choose_view()
    engine = engines.get()
    environ = {**os.environ, **settings.env}
    planned = plan.make(settings, hardware.detect(environ), engine)
    packed = payload.pack(*call) if engine.isolated else payload.hold(*call)
    launch = _Launch(engine, planned, environ, packed, _name(function), open_view)
    if not block:
        context = contextvars.copy_context()  # keeps what is printed in the cell that has started the job
        threading.Thread(target=context.run, args=(launch.run,), name=f"launch {launch.job.name}", daemon=True).start()
        return launch.job
    with interrupts(launch.requests):
        launch.run()
    return launch.job.result()


def debug_launcher(function: Callable[..., Any], args: Sequence[Any] = (), num_processes: int = 2) -> Any:
    """Runs `function(*args)` on CPU ranks, whatever the hardware. See `notebook_launcher`."""
    return notebook_launcher(function, args, num_processes, device="cpu")


class _Launch:
    """A job with all its attempts."""

    def __init__(
        self,
        engine: Engine,
        planned: Plan,
        environ: Mapping[str, str],
        packed: Payload,
        name: str,
        open_view: Callable[[Job], frontend.View],
    ) -> None:
        self.job = Job(name, planned.first, planned.size, planned.place)
        self._open_view = open_view
        self.requests = StopRequests()
        self.job.on_cancel(lambda: self.requests.ask(Reason.CANCEL))
        self._engine = engine
        self._plan = planned
        self._environ = environ
        self._payload = packed

    def run(self) -> None:
        """Runs the job to its end. Never raises: the job holds whatever comes of it."""
        if self._plan.notice:
            frontend.current.notice(self._plan.notice)
        view = frontend.Views(self.job, self._open_view)
        try:
            self._run_attempts(view)
        except NotebookAccelError as error:
            self.job.finish(Status.FAILED, error=error)
        except BaseException as error:
            self.job.finish(Status.FAILED, error=error)
            raise
        finally:
            view.finish()
            self._payload.close()
            self.requests.close()

    def _run_attempts(self, view: frontend.View) -> None:
        config = self._plan.config
        deadline = None if config.timeout is None else time.monotonic() + config.timeout
        for number in range(config.max_restarts + 1):
            try:
                attempt = self._attempt(number, view, deadline)
            except LaunchError as error:
                # It was ended from outside, just before. If nothing of the user's has begun, a new one does as well.
                if not error.engine_lost or any(state.pid is not None for state in self.job.ranks):
                    raise
                attempt = self._attempt(number, view, deadline)
            if attempt.ending is not Ending.FAILED or number == config.max_restarts:
                self._conclude(attempt)
                return
            why = str(self._error(attempt)).split("\n", 1)[0]
            frontend.current.notice(f"{why}; starting again (attempt {number + 2} of {config.max_restarts + 1})")

    def _attempt(self, number: int, view: frontend.View, deadline: float | None) -> Attempt:
        meeting = plan.meet(self._plan.config, number)
        spec = GroupSpec(
            environments=plan.environments(self._plan, meeting, self._environ),
            meeting=meeting,
            heartbeat=self._plan.config.heartbeat,
        )
        self.job.apply(None, AttemptStarted(number))
        ranks = self._engine.start(spec)
        try:
            output = Output([state.rank for state in self.job.ranks], self._plan.label, frontend.current.write)
            return Run(ranks, self.job, view, output, self.requests, deadline)(self._payload)
        finally:
            ranks.close()

    def _conclude(self, attempt: Attempt) -> None:
        job = self.job
        if attempt.ending is Ending.RETURNED:
            value, error = self._values()
            job.finish(Status.FAILED if error else Status.DONE, value, error)
        elif attempt.ending is Ending.TIMED_OUT:
            assert self._plan.config.timeout is not None
            late = failure.timeout(
                job.ranks, attempt.stacks, self._plan.config.timeout, world_size=self._plan.world_size
            )
            job.finish(Status.FAILED, error=late)
        elif attempt.ending is Ending.FAILED:
            job.finish(Status.FAILED, error=self._error(attempt))
        elif self.requests.take()[0] is Reason.CANCEL:
            job.finish(Status.CANCELLED)
        else:
            job.finish(Status.INTERRUPTED, error=_interrupted(job))

    def _error(self, attempt: Attempt) -> Exception:
        return failure.error(
            self.job.ranks, attempt.stacks, oom_killed=attempt.oom_killed, world_size=self._plan.world_size
        )

    def _values(self) -> tuple[list[Any] | None, Exception | None]:
        """What the ranks returned, or why that cannot be had."""
        values = []
        for state in self.job.ranks:
            assert state.returned is not None
            try:
                values.append(payload.unpack_value(state.returned.value))
            except Exception as problem:
                return None, failure.lost_value(state, problem)
            state.returned = Returned()  # the value has its memory now
        return (None if all(value is None for value in values) else values), None


def _interrupted(job: Job) -> KeyboardInterrupt:
    error = KeyboardInterrupt(f"{job.name}() was interrupted after {job.seconds:.1f} s; its ranks have ended")
    frontend.current.shorten(error)
    return error


def _name(function: Callable[..., Any]) -> str:
    inner = getattr(function, "func", function)  # a partial's
    return str(getattr(inner, "__name__", type(inner).__name__))
