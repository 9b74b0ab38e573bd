"""Starts a launch: decides what to run from options, settings, and hardware, then runs it to its end.

The decision is a `Request`, made after all checks.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import click

from notebook_accel import hardware
from notebook_accel.cli.exit_codes import USER_ERROR
from notebook_accel.cli.launch import agent_process, program, script_job, wrapper
from notebook_accel.cli.launch.elastic import Order
from notebook_accel.cli.launch.options import merged
from notebook_accel.cli.launch.rendezvous import rendezvous
from notebook_accel.config import LaunchConfig, kinds
from notebook_accel.config.layers import Layer
from notebook_accel.config.resolve import base_layers
from notebook_accel.config.settings import SETTINGS
from notebook_accel.errors import ConfigurationError, HardwareError
from notebook_accel.hardware import Hardware
from notebook_accel.launch.plan import other_frameworks, plan
from notebook_accel.launch.plan.environment import of_launch, of_time_limit
from notebook_accel.launch.plan.plan import Plan
from notebook_accel.launch.system.network import ReservedPorts

_ELASTIC = ("rdzv_conf", "tee", "log_dir", "role", "no_python")
"""Options that only torch's launcher has."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to start on this machine."""

    launched: tuple[str, ...]
    """The script, module or program with its arguments, as the end of the command line of torch's launcher."""
    options: tuple[str, ...] | None
    """Options of torch's launcher; `None` for a single rank, which needs no launcher."""
    is_job: bool = False
    """Whether the engine of a notebook's ranks starts these, rather than torch's launcher."""
    environment: Mapping[str, str]
    """Variables to add to the ranks' environment."""
    ports: ReservedPorts
    """Holds the ports that are named there, until the ranks have exited."""
    plan: Plan
    """Where the ranks of this node run."""
    quiet: bool = False
    notices: Sequence[str] = ()
    """Notices of choices that were made for the user."""

    @property
    def program(self) -> tuple[str, ...]:
        """The command of a single rank."""
        if self.launched[0] == "--no-python":
            return self.launched[1:]
        if self.launched[0] == "--module":
            return (sys.executable, "-m", *self.launched[1:])
        return (sys.executable, *self.launched)

    def elastic(self) -> tuple[str, ...]:
        """The command line of torch's launcher."""
        assert self.options is not None
        script = () if self.launched[0] == "--no-python" else (wrapper.__file__,)
        return (*self.options, *script, *self.launched)


def make(
    target: str,
    arguments: Sequence[str],
    options: Mapping[str, Any],
    below: Sequence[Layer],
    hardware: Hardware,
    environ: Mapping[str, str],
) -> Request:
    """Decides what to start.

    Args:
        target: The script, module, program or notebook.
        arguments: Its own arguments.
        options: The given options of the command line, by name.
        below: The layers of the file and the environment.
        hardware: This machine's hardware.
        environ: The environment that the ranks inherit.

    Raises:
        ConfigurationError: An option, or a combination, cannot work.
        HardwareError: There are fewer devices than requested.
    """
    config = merged(options, below)
    launched = program.program(target, arguments, options)
    planned = plan.make_for_torchrun(config, hardware)
    if options.get("multi_gpu") and planned.world_size < 2:
        raise HardwareError(f"--multi_gpu needs several GPUs, but this launch has {planned.size} rank: leave it out")
    binding, binding_notice = _cpu_binding(planned)
    arguments_of_torch = interface = None
    needs_launcher = binding or config.max_restarts or config.timeout is not None or options.get("tee")
    if planned.world_size > 1 or needs_launcher:
        meeting = rendezvous(config, options.get("rdzv_conf"), planned.size)
        interface = meeting.interface
        arguments_of_torch = (
            f"--nproc-per-node={planned.size}",
            *meeting.options,
            *_torch_options(options, config),
            *binding,
        )
    is_job = arguments_of_torch is not None and _is_job(options, config, binding)
    if is_job and "monitor_interval" in options:
        heartbeat = kinds.seconds.parse("monitor_interval", options["monitor_interval"])
        planned = replace(planned, config=replace(config, heartbeat=heartbeat))
    fewest = "" if is_job else _fewest_ranks(config)
    notices = [*planned.notice.splitlines(), _unused(config, is_job=is_job), binding_notice, fewest]
    if config.num_nodes > 1 and config.rdzv_backend == "c10d" and "machine_rank" in options:
        notices.append("machine_rank has no effect with rdzv_backend c10d, which numbers the machines itself")
    added, ports = of_launch(planned, environ, interface), ReservedPorts()
    among_ranks = ports if arguments_of_torch and config.num_nodes == 1 else None
    of_frameworks = other_frameworks.variables(planned.size, planned.device, among_ranks, {**environ, **added})
    return Request(
        launched=launched,
        options=arguments_of_torch,
        environment={**added, **of_time_limit(config), **wrapper.pack(of_frameworks)},
        ports=ports,
        plan=planned,
        quiet=bool(options.get("quiet")),
        notices=[each for each in notices if each],
        is_job=is_job,
    )


def _is_job(options: Mapping[str, Any], config: LaunchConfig, binding: Sequence[str]) -> bool:
    """Whether the ranks need nothing that only torch's launcher does."""
    return config.num_nodes == 1 and not (binding or any(options.get(name) for name in _ELASTIC))


def _unused(config: LaunchConfig, *, is_job: bool) -> str:
    """A notice of settings that only launches from Python use, or only jobs."""
    left = [
        f"{name}{config.cite(name)}"
        for name, row in SETTINGS.items()
        if name in config.sources and (row.of_cluster or (row.of_job and not is_job))
    ]
    return f"{' and '.join(left)}: ignored here, since only launches from Python use it" if left else ""


def _torch_options(options: Mapping[str, Any], config: LaunchConfig) -> list[str]:
    values = {**options, "max_restarts": config.max_restarts or None}
    names = ("max_restarts", "monitor_interval", "tee", "log_dir", "role")
    return [f"--{name.replace('_', '-')}={values[name]}" for name in names if values.get(name) is not None]


def _fewest_ranks(config: LaunchConfig) -> str:
    """A notice if torch's launcher can't heed `min_processes`: it can leave out machines, but no ranks of one."""
    if config.min_processes is None or (config.num_nodes > 1 and config.rdzv_backend == "c10d"):
        return ""
    why = (
        "min_processes leaves out whole machines here, and needs several of them with --rdzv_backend c10d; "
        "on one machine, it needs several ranks, and none of the options of torch's launcher"
    )
    if config.is_option("min_processes"):
        raise ConfigurationError(f"--{why}")
    return f"{why}: it has no effect"


def _cpu_binding(planned: Plan) -> tuple[tuple[str, ...], str]:
    """The option of torch's launcher that binds ranks to cores, and a notice if it would have no effect."""
    config = planned.config
    if not config.cpu_affinity:
        return (), ""
    if planned.device == "cuda":
        return ("--numa-binding=node",), ""
    why = f"enable_cpu_affinity binds ranks to the cores close to their GPUs, but these run on {planned.device_text}"
    if config.is_option("cpu_affinity"):
        raise ConfigurationError(f"--{why}: leave it out")
    return (), f"{why}: it has no effect"


def start(target: str, arguments: Sequence[str], options: Mapping[str, Any]) -> NoReturn:
    """Runs a launch to its end, and exits. The program of a single rank replaces this process.

    Args:
        target: The script, module, program or notebook.
        arguments: Its own arguments.
        options: The options of the command line, by name; `None` for those that are not given.

    Raises:
        ConfigurationError: An option, or a combination, cannot work.
        HardwareError: There are fewer devices than requested.
    """
    given = {name: value for name, value in options.items() if value not in (None, ())}
    file = given.get("config_file")
    below = base_layers(os.environ, None if file is None else Path(file))
    wanted = make(target, arguments, given, below, hardware.detect(), os.environ)
    for notice in () if wanted.quiet else wanted.notices:
        click.echo(notice, err=True)
    if wanted.is_job:
        is_module = wanted.launched[0] == "--module" and not target.endswith(".ipynb")
        name = program.name(target, is_module=is_module)
        sys.exit(script_job.run(wanted.plan, wanted.launched, name, quiet=wanted.quiet))
    script_job.end_server()
    if wanted.options is None:
        _exec(wanted)
    debug, size = wanted.plan.config.debug, wanted.plan.world_size
    sys.exit(agent_process.run(Order(wanted.elastic(), wanted.environment, wanted.quiet, debug, size)))


def _exec(wanted: Request) -> NoReturn:
    """Replaces this process by the program, so that it owns the exit code, the signals and the terminal."""
    sys.stdout.flush()
    sys.stderr.flush()
    environment = {**os.environ, **wanted.environment}
    try:
        os.execvpe(wanted.program[0], wanted.program, environment)
    except OSError as error:
        click.echo(f"error: {wanted.program[0]} cannot be run: {error.strerror}", err=True)
        sys.exit(USER_ERROR)
