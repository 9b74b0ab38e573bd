"""`notebook_launcher`: a function from a cell, run on every rank."""

from __future__ import annotations

import contextvars
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from notebook_accel import hardware
from notebook_accel.config import checks
from notebook_accel.config.call_arguments import unset
from notebook_accel.config.resolve import resolve
from notebook_accel.errors import ConfigurationError
from notebook_accel.launch.driver import attach
from notebook_accel.launch.driver.restarts import Launch
from notebook_accel.launch.driver.stop_policy import StopReason, catch_sigint
from notebook_accel.launch.plan import plan
from notebook_accel.launch.show import front_end
from notebook_accel.launch.wire import payload


def notebook_launcher(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    num_processes: int | None = None,
    mixed_precision: str = unset("no"),
    use_port: str | int = unset("29500"),
    master_addr: str = unset("127.0.0.1"),
    node_rank: int = unset(0),
    num_nodes: int = unset(1),
    rdzv_backend: str = unset("static"),
    rdzv_endpoint: str = unset(""),
    rdzv_conf: Mapping[str, Any] | None = None,
    rdzv_id: str = unset("none"),
    max_restarts: int = unset(0),
    monitor_interval: float = unset(0.1),
    log_line_prefix_template: str | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    gpus: Sequence[int] | None = None,
    device: str | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    stall_after: float | None = unset(60.0),
    cluster: str | None = None,
    insecure: bool | None = None,
    block: bool | None = None,
    detach: bool = False,
) -> Any:
    """Runs `function(*args, **kwargs)` on several ranks, and returns what each of them returned.

    The function may be defined in a cell, and may use whatever the notebook has defined: it is pickled by value, and
    each rank works on copies. Output appears below the cell, labelled by rank. The positional parameters are those of
    Hugging Face Accelerate's function of the same name. What is not given is as `%accelerate`, the environment or the
    configuration file say, and otherwise as described here.

    Args:
        function: What to run. Any callable that cloudpickle can pickle.
        args: Its positional arguments.
        num_processes: Ranks on this machine; with `cluster`, on all machines together. By default one for each
            accelerator, or one for each physical core up to 4.
        mixed_precision: `no`, `fp16`, `bf16` or `fp8`: the default of every `Accelerator` on the ranks.
        use_port: The port on which the ranks meet. With one machine, 29500 stands for any free port.
        master_addr: With several machines, the address of the one with `node_rank=0`.
        node_rank: Which of the machines this is, from 0.
        num_nodes: How many machines take part. Without `cluster` each makes the same call, with its own `node_rank`,
            and gets its own ranks' results.
        rdzv_backend: Only `static`: the rendezvous has an address that is known beforehand.
        rdzv_endpoint: `host:port`, instead of `master_addr` and `use_port`.
        rdzv_conf: `{"timeout": seconds}` to wait for the other machines; 300 by default.
        rdzv_id: A name of the run; machines join only with the same one.
        max_restarts: How often the whole group is started again after a failure.
        monitor_interval: Seconds between two heartbeats of each rank.
        log_line_prefix_template: The label of output lines; may use `${rank}`, `${local_rank}` and `${role_name}`.
        kwargs: The function's keyword arguments.
        gpus: Which GPUs to use, one entry for each rank: numbers as the notebook sees them. A GPU named twice is
            shared.
        device: `cpu`, `cuda`, `mps` or `tpu`, where the default is not wanted.
        env: Environment variables for the ranks, beside the notebook's.
        timeout: Seconds after which the ranks are ended, and the error shows where each of them was.
        stall_after: Seconds without progress, while ranks wait for others, after which it is shown where each rank is;
            `None` for never.
        cluster: Where `num_nodes` machines are to be had: `auto` for the Ray cluster that this machine is a node of, or
            the address of one, `ray://host:10001` or `host:6379`. The one call here starts the ranks on all of them.
        insecure: With `True`, a cluster of other machines is used though it asks nobody for a token.
        block: With `False`, returns a `Job` at once, and the notebook stays free.
        detach: With `True`, the same, and the job goes on whatever becomes of the notebook's kernel; `attach` finds it
            again from any other.

    Returns:
        A list with the value of each rank, tensors on the CPU; or `None` if all returned `None`. With `block=False` or
        `detach=True` a `Job`.

    Raises:
        ConfigurationError: An argument cannot work.
        HardwareError: There are fewer devices than were asked for.
        PayloadError: The function or an argument cannot be pickled.
        LaunchError: The ranks could not be started.
        RankError: A rank failed; its exception is the `__cause__`.
        RankTimeoutError: `timeout` has passed.
        KeyboardInterrupt: The notebook was interrupted. Ranks get one too, and 5 seconds to end.
    """
    settings = resolve(locals())  # picks what is a setting by its name
    call = checks.call(function, args, kwargs)
    checks.detach(detach, block)
    open_view = front_end.current.choose_view()
    environ = {**os.environ, **settings.env}
    found = hardware.detect(environ)
    engine = plan.engine_for(settings, found)
    planned = plan.make(settings, found, engine)
    if detach and not engine.isolated:
        raise ConfigurationError(
            f"detach=True: a rank of the {engine.name} engine lives in this process, and ends with it"
        )
    packed = payload.pack(*call) if engine.isolated else payload.wrap_in_process(*call)
    if detach:
        from notebook_accel.launch.driver import detach as detaching

        with packed:
            return detaching.launch(planned, environ, packed, _name(function))
    launch = Launch(engine, planned, environ, packed, _name(function), open_view)
    if block is False:
        attach.remember(launch.job)
        context = contextvars.copy_context()  # keeps what is printed in the cell that has started the job
        threading.Thread(target=context.run, args=(launch.run,), name=f"launch {launch.job.name}", daemon=True).start()
        return launch.job
    launch.job.blocking = True
    # The panel's Stop ends the cell as an interrupt does.
    launch.job.runner.cancel = lambda: launch.requests.submit(StopReason.INTERRUPT)
    with catch_sigint(launch.requests):
        launch.run()
    return launch.job.result()


def debug_launcher(function: Callable[..., Any], args: Sequence[Any] = (), num_processes: int = 2) -> Any:
    """Runs `function(*args)` on CPU ranks of this machine, whatever the hardware and the settings for it are.

    See `notebook_launcher`.
    """
    return notebook_launcher(function, args, num_processes, mixed_precision="no", num_nodes=1, device="cpu", cluster="")


def _name(function: Callable[..., Any]) -> str:
    inner = getattr(function, "func", function)  # a partial's
    return str(getattr(inner, "__name__", type(inner).__name__))
