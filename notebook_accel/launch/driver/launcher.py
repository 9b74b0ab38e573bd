"""`notebook_launcher`: runs a function from a cell on every rank.

A notebook imports it in a cell of its own. Modules that only a launch needs are therefore imported by the first one, or
before it in the background (`notebook/__init__.py`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from notebook_accel import hardware
from notebook_accel.advice import explained
from notebook_accel.config import LaunchConfig
from notebook_accel.config.call_arguments import (
    check_call,
    check_detach,
    check_fit,
    check_flag,
    debug_advice,
    launch_advice,
    name_of,
    unset,
)
from notebook_accel.config.resolve import resolve
from notebook_accel.errors import ConfigurationError, NotebookAccelError
from notebook_accel.launch.driver.stop_policy import StopReason, catch_sigint, catch_sigterm
from notebook_accel.launch.engines import preloader
from notebook_accel.launch.engines.contract import Engine
from notebook_accel.launch.show import console
from notebook_accel.launch.system import own_process
from notebook_accel.launch.wire import payload
from notebook_accel.launch.wire.payload import Payload

if TYPE_CHECKING:
    from notebook_accel.launch.driver.launch import Launch
    from notebook_accel.launch.job.job import Job
    from notebook_accel.launch.job.rules import NewRule
    from notebook_accel.launch.journal.saved_launch import SavedLaunch
    from notebook_accel.launch.plan.plan import Plan

BLOCKING, BACKGROUND, DETACHED = "blocking", "background", "detached"
"""How a launch is made: plainly, with `block=False`, or with `detach=True`."""


@explained(launch_advice)
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
    notify: str | Callable[[Any], object] | Sequence[str | Callable[[Any], object]] | None = None,
    min_processes: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    every: int | str = unset("5 min"),
    keep: int = unset(3),
    resume: bool | None = None,
    time_limit: str | None = None,
    cluster: str | None = None,
    insecure: bool | None = None,
    name: str | None = None,
    notes: str | None = None,
    rules: Sequence[NewRule] | None = None,
    wait: str = unset("no"),
    block: bool | None = None,
    detach: bool = False,
    in_process: bool = False,
) -> Any:
    """Runs `function(*args, **kwargs)` on several ranks, and returns what each of them returned.

    You can define the function in a cell, and it can use anything that the notebook defines. It is pickled by value,
    and each rank works on copies. Output appears below the cell, labeled by rank. The positional parameters are those
    of Hugging Face Accelerate's function of the same name. Arguments that you leave out come from `%accelerate`,
    the environment, or the configuration file; otherwise, the defaults below apply.

    Args:
        function: What to run. Any callable that cloudpickle can pickle.
        args: Its positional arguments.
        num_processes: Ranks on this machine; with `cluster`, on all machines together. By default one for each
            accelerator, or one for each physical core up to 4.
        mixed_precision: `no`, `fp16`, `bf16` or `fp8`: the default of every `Accelerator` on the ranks.
        use_port: The port of the rendezvous. On a single machine, 29500 stands for any free port.
        master_addr: With several machines, the address of the one with `node_rank=0`.
        node_rank: The number of this machine, counted from 0.
        num_nodes: The number of machines. Without `cluster`, make the same call on each machine, with its own
            `node_rank`; each call returns the results of that machine's ranks.
        rdzv_backend: Must be `static`: the address of the rendezvous is known beforehand.
        rdzv_endpoint: `host:port`, instead of `master_addr` and `use_port`.
        rdzv_conf: `{"timeout": seconds}`: how long to wait for the other machines; 300 by default.
        rdzv_id: A name for the run; only machines that use the same name join it.
        max_restarts: How many times the whole group is restarted after a failure.
        monitor_interval: Seconds between two heartbeats of each rank.
        log_line_prefix_template: The label of output lines; may use `${rank}`, `${local_rank}` and `${role_name}`.
        kwargs: The function's keyword arguments.
        gpus: Which GPUs to use, one entry for each rank, as the notebook numbers them. Ranks share a GPU that is listed
            more than once.
        device: `cpu`, `cuda`, `mps` or `tpu`, to override the default.
        env: Environment variables for the ranks, in addition to the notebook's.
        timeout: Seconds after which the ranks are ended; the error shows where each of them was.
        stall_after: Seconds without progress, while ranks wait for others, after which the job shows where each rank
            is; `None` for never.
        notify: Where to send a notification if the job ends, fails, or stalls, or if one of its rules is met:
            `"https://…"`, which gets JSON, `"ntfy:TOPIC"`, `"slack:$NAME"` with the environment variable that has the
            webhook, a function, or a list of these.
        min_processes: The fewest ranks that a restart may continue with if devices, memory or machines of a cluster are
            gone; by default, a restart needs all of them. Needs `max_restarts`.
        checkpoint: A folder. An `Accelerator` on the ranks saves the run's state there, in the loop over its
            `epochs()`, and the same launch with the same folder continues from the last checkpoint.
        every: The interval between checkpoints: a number of optimizer steps, or a time such as `"5 min"` or `"30 s"`.
        keep: How many of the newest checkpoints to keep.
        resume: With `False`, it is an error if the folder already has checkpoints.
        time_limit: A time, such as `"8h30m"`, after which training saves a checkpoint and ends.
        cluster: The cluster that provides the `num_nodes` machines: `auto` for the Ray cluster that this machine
            belongs to, an address such as `ray://host:10001` or `host:6379`, `slurm`, or `ssh://host1,host2` for hosts
            that your `ssh` reaches, all of them unless `num_nodes` says how many. This one call starts the ranks on all
            of the machines.
        insecure: With `True`, uses a cluster of other machines even if it does not require a token.
        name: What to call the job in its panel, in `jobs()`, and in messages: a line of text. By default, the name of
            the function.
        notes: A note for yourself, such as what is different in this run; shown with the job.
        rules: What to do automatically when a metric meets a condition: a list of what `when` returns, such as
            `[when("loss", is_nan=True, do="pause")]`.
        wait: With `free`, the ranks start once the GPUs of `gpus`, or as many as `num_processes`, are free: after your
            other jobs on them, in the order in which they were launched, and once other processes have freed
            their memory.
        block: With `False`, returns a `Job` at once, and the notebook stays free.
        detach: With `True`, also returns a `Job` at once, and the job keeps running even if the notebook's kernel
            ends; `attach` finds it from any other kernel.
        in_process: With `True`, runs the function as a single rank in this process rather than in one of its own:
            nothing is copied, so global names that it assigns are the notebook's, and what it does to devices and
            memory stays.

    Returns:
        A list with the value of each rank, tensors on the CPU; or `None` if all returned `None`. With `block=False` or
        `detach=True` a `Job`.

    Raises:
        ConfigurationError: An argument cannot work.
        TypeError: There is no such argument; the message says what to write instead.
        HardwareError: There are fewer devices than requested.
        PayloadError: The function or an argument cannot be pickled.
        LaunchError: The ranks could not be started.
        RankError: A rank failed; its exception is the `__cause__`.
        RankTimeoutError: The ranks did not finish within `timeout`.
        KeyboardInterrupt: The notebook was interrupted. The ranks are interrupted too, and have 5 seconds to end.
    """
    given = locals()
    with _naming_an_interrupt():
        from notebook_accel.launch.job.rules import check

        settings = resolve(given)  # picks what is a setting by its name
        call = check_call(function, args, kwargs)
        check_fit(*call, "the args= and kwargs= of this launch")
        check_detach(detach, block)
        check_flag("in_process", in_process)
        if detach:
            check_reachable(settings)
        checked = check(rules)
    mode = DETACHED if detach else BACKGROUND if block is False else BLOCKING
    return launch(settings, call, mode, in_process=in_process, rules=checked)


def check_reachable(settings: LaunchConfig) -> None:
    """Refuses functions to notify, for a job that runs in another process.

    Raises:
        ConfigurationError: There is one.
    """
    if any(map(callable, settings.notify)):
        raise ConfigurationError(
            "notify= can't call a function of the notebook for a job with detach=True, which runs in a process of its "
            "own: give an address, such as 'ntfy:my-topic'"
        )


Call = tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any]]
"""A function with its arguments."""


def launch(
    settings: LaunchConfig,
    call: Call,
    mode: str,
    *,
    in_process: bool = False,
    part_of: str = "",
    rules: Sequence[NewRule] = (),
) -> Any:
    """Launches a call.

    Args:
        settings: The settings of the launch.
        call: The call, as `check_call` returns it.
        mode: How it is made.
        in_process: Whether its only rank runs in this process.
        part_of: The ID of a sweep that it is a trial of.
        rules: What to do by itself when a metric meets a condition.

    Returns:
        As `notebook_launcher`.

    Raises:
        NotebookAccelError: As `notebook_launcher`.
    """
    function = call[0]
    with _naming_an_interrupt():
        prepared = replace(prepare(settings, in_process=in_process), rules=rules)
        if mode == DETACHED and not prepared.engine.isolated:
            raise ConfigurationError(
                f"detach=True does not work with the {prepared.engine.name} engine, whose rank runs in this process "
                "and ends with it"
            )
        prepared = replace(prepared, planned=replace(prepared.planned, part_of=part_of))
        prepared, packed = prepared.packing(*call)
        saved = None
        if settings.checkpoint_dir:
            from notebook_accel.launch.driver import stored_code
            from notebook_accel.launch.job.rules import pack

            arguments = partial(payload.pack_arguments, *call[1:])
            saved = stored_code.save(settings, packed, function, name_of(function), mode, arguments)
            saved = replace(saved, rules=pack(prepared.rules))
    return prepared.start(packed, name_of(function), mode, saved)


@contextlib.contextmanager
def _naming_an_interrupt() -> Iterator[None]:
    """Makes an interrupt during planning say so, without internal frames."""
    try:
        yield
    except KeyboardInterrupt:
        raise console.interrupted("the launch was interrupted before it started ranks") from None


@dataclass(frozen=True)
class Prepared:
    """A launch that is planned, and can be started."""

    engine: Engine
    planned: Plan
    environ: Mapping[str, str]
    open_view: Callable[[Job], console.View]
    rules: Sequence[NewRule] = ()
    make: Callable[..., Launch] | None = None
    """Makes the launch, if it is not a plain `Launch`; can be pickled for a detached launch."""

    def noting(self, line: str) -> Prepared:
        """The launch with one more line in its notice, unless the line is empty."""
        return replace(self, planned=self.planned.noting(line))

    def packing(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Prepared, Payload]:
        """The launch with the text and the notices of its call; and the call, packed for the ranks.

        Raises:
            PayloadError: As `payload.pack`.
        """
        from notebook_accel.launch.driver import assigned_globals, changed_modules
        from notebook_accel.launch.plan import run_facts

        found, name, isolated = self, name_of(function), self.engine.isolated
        if isolated:
            found = found.noting(assigned_globals.notice(function, self.planned.world_size))
        call, arguments = run_facts.call(name, args, kwargs), run_facts.arguments(function, args, kwargs)
        found = replace(found, planned=replace(found.planned, call=call, arguments=arguments))
        packed = payload.pack(function, args, kwargs) if isolated else payload.wrap_in_process(function, args, kwargs)
        return found.noting(changed_modules.notice(packed, name)), packed

    def start(self, packed: Payload, name: str, mode: str, saved: SavedLaunch | None) -> Any:
        """Starts the launch.

        Args:
            packed: The call; is closed.
            name: The name of its function.
            mode: How it is made.
            saved: What is needed to launch it again, if it saves checkpoints.

        Returns:
            As `notebook_launcher`.

        Raises:
            ConfigurationError: A job that runs saves its checkpoints in the same folder.
            NotebookAccelError: What `make` raises.
        """
        folder = "" if saved is None else saved.checkpoint_dir
        try:
            with _naming_an_interrupt():
                from notebook_accel.launch.driver.launch import Launch
                from notebook_accel.launch.plan import conflicts

                conflicts.refuse_shared_folder(self.planned, folder)
                planned, make = self.planned.noting(conflicts.notice(self.planned, name, folder)), self.make or Launch
            if mode == DETACHED:
                from notebook_accel.launch.driver import detach as detaching

                with packed:
                    return detaching.launch(planned, self.environ, packed, name, saved, self.rules, make)
            launched = make(
                self.engine, planned, self.environ, packed, name, self.open_view, saved=saved, rules=self.rules
            )
        except BaseException:
            packed.close()
            raise
        return _in_background(launched) if mode == BACKGROUND else _to_its_end(launched)


def prepare(config: LaunchConfig, *, in_process: bool = False) -> Prepared:
    """Plans a launch.

    Raises:
        NotebookAccelError: As `notebook_launcher`, for what cannot work.
    """
    from notebook_accel.launch.plan import plan

    open_view = console.current.choose_view()
    environ = {**os.environ, **config.env}
    found = hardware.detect(environ)
    engine = plan.engine_for(config, found, in_process=in_process)
    return Prepared(engine, plan.make(config, found, engine), environ, open_view)


def _in_background(launch: Launch) -> Job:
    from notebook_accel.launch.driver import attach

    try:
        launch.announce()  # before this call returns, so that the next launch finds the job
        own_process.start_thread(partial(_run, launch), f"launch {launch.job.name}")
    except NotebookAccelError:
        launch.journal.discard()
        launch.close()
        raise
    attach.remember(launch.job)
    return launch.job


def _to_its_end(launch: Launch) -> Any:
    launch.job.blocking = True
    # The panel's Stop button ends the cell as an interrupt does.
    launch.job.runner.cancel = lambda: launch.requests.submit(StopReason.INTERRUPT)
    saves = catch_sigterm(launch.requests) if launch.saves_checkpoints else contextlib.nullcontext()
    with saves, catch_sigint(launch.requests):
        launch.announce()
        _run(launch)
    return launch.job.result()


def _run(launch: Launch) -> None:
    launch.run()
    preloader.current.after_launch(console.current.preloads_after)
    launch.share()


@explained(debug_advice)
def debug_launcher(function: Callable[..., Any], args: Sequence[Any] = (), num_processes: int = 2) -> Any:
    """Runs `function(*args)` on CPU ranks of this machine, regardless of its hardware and the settings for that.

    See `notebook_launcher`.
    """
    return notebook_launcher(function, args, num_processes, mixed_precision="no", num_nodes=1, device="cpu", cluster="")
