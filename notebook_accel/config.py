"""The settings of a launch: one frozen value, checked once, before anything is spent."""

from __future__ import annotations

import math
import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from notebook_accel.errors import ConfigurationError

PRECISIONS = ("no", "fp16", "bf16", "fp8")
DEVICES = ("cpu", "cuda", "mps")
DEFAULT_PORT = 29500
LABEL_FIELDS = ("role_name", "rank", "local_rank")
_JOIN_TIMEOUT = 300.0


@dataclass(frozen=True, kw_only=True)
class LaunchConfig:
    """How to start the ranks of one launch."""

    num_processes: int | None = None
    """Ranks on this machine; `None`: one for each accelerator, else one for each physical core up to 4."""
    mixed_precision: str = "no"
    port: int = DEFAULT_PORT
    """With one machine, 29500 stands for any free port."""
    master_addr: str = "127.0.0.1"
    node_rank: int = 0
    num_nodes: int = 1
    run_id: str = "none"
    """Machines join only with the same one."""
    join_timeout: float = _JOIN_TIMEOUT
    """Seconds to wait for the other machines."""
    max_restarts: int = 0
    heartbeat: float = 0.1
    """Seconds between two signs of life of a rank."""
    label: str | None = None
    """A template for the label of output lines."""
    gpus: tuple[int, ...] | None = None
    """Indices as torch counts them in the notebook."""
    device: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    """Seconds that the whole launch may take."""


def from_call(
    *,
    num_processes: Any,
    mixed_precision: Any,
    use_port: Any,
    master_addr: Any,
    node_rank: Any,
    num_nodes: Any,
    rdzv_backend: Any,
    rdzv_endpoint: Any,
    rdzv_conf: Any,
    rdzv_id: Any,
    max_restarts: Any,
    monitor_interval: Any,
    log_line_prefix_template: Any,
    gpus: Any,
    device: Any,
    env: Any,
    timeout: Any,
) -> LaunchConfig:
    """Checks the arguments of `notebook_launcher`, which are described there.

    Raises:
        ConfigurationError: One of them, or a combination, cannot work.
    """
    num_nodes = _integer("num_nodes", num_nodes, least=1)
    if rdzv_backend not in ("static", ""):
        raise ConfigurationError(
            f"rdzv_backend={rdzv_backend!r} is not available: machines meet at a point that is known beforehand. Leave "
            'it at "static", and give master_addr, use_port and node_rank.'
        )
    address, port = _meeting_point(master_addr, use_port, rdzv_endpoint)
    if num_nodes > 1 and port == 0:
        raise ConfigurationError(
            f"use_port={use_port!r} stands for any free port, which the other machines can't know: with "
            f"num_nodes={num_nodes} give one that is free on the first machine"
        )
    node_rank = _integer("node_rank", node_rank, least=0)
    if node_rank >= num_nodes:
        raise ConfigurationError(
            f"node_rank={node_rank} with num_nodes={num_nodes}: the ranks of the machines are 0 to {num_nodes - 1}"
        )
    if num_nodes == 1 and address not in ("127.0.0.1", "localhost", "::1"):
        raise ConfigurationError(
            f"master_addr={address!r} has no effect with num_nodes=1: one machine talks to itself on the loopback "
            "interface. Leave it out, or give num_nodes."
        )
    return LaunchConfig(
        num_processes=None if num_processes is None else _integer("num_processes", num_processes, least=1),
        mixed_precision=_choice("mixed_precision", mixed_precision, PRECISIONS),
        port=port,
        master_addr=address,
        node_rank=node_rank,
        num_nodes=num_nodes,
        run_id=str(rdzv_id),
        join_timeout=_join_timeout(rdzv_conf, num_nodes),
        max_restarts=_integer("max_restarts", max_restarts, least=0),
        heartbeat=_seconds("monitor_interval", monitor_interval),
        label=None if log_line_prefix_template is None else _label(log_line_prefix_template),
        gpus=None if gpus is None else _gpus(gpus, device),
        device=None if device is None else _choice("device", _device_name(device), DEVICES),
        env=_environment(env),
        timeout=None if timeout is None else _seconds("timeout", timeout),
    )


def check_call(function: Any, args: Any, kwargs: Any) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """The function and its arguments, once they are what a call needs.

    Raises:
        ConfigurationError: The function cannot be called, or `args` or `kwargs` are not arguments.
    """
    if not callable(function):
        hint = "Pass the function itself, `train`, rather than what it returned, `train()`."
        raise ConfigurationError(f"the first argument must be a function, not {function!r:.80}. {hint}")
    if isinstance(args, (str, bytes)) or not isinstance(args, Sequence):
        raise ConfigurationError(f"args must be a tuple, not {args!r:.80}. For one argument write args=(value,).")
    if kwargs is not None and not (isinstance(kwargs, Mapping) and all(isinstance(key, str) for key in kwargs)):
        raise ConfigurationError(f"kwargs must be a dict with names as its keys, not {kwargs!r:.80}")
    return function, tuple(args), dict(kwargs or {})


def _meeting_point(address: Any, port: Any, endpoint: Any) -> tuple[str, int]:
    if not isinstance(address, str) or not address:
        raise ConfigurationError(f"master_addr must be a host name or an address, not {address!r}")
    number = _port("use_port", port)
    if endpoint:
        match = re.fullmatch(r"(.+):(\d+)", str(endpoint))
        if match is None:
            raise ConfigurationError(f'rdzv_endpoint must be written "host:port", not {endpoint!r}')
        given = (match[1], _port("rdzv_endpoint", match[2], shown=endpoint))
        defaults = ("127.0.0.1", DEFAULT_PORT)
        if (address, number) not in (defaults, given):
            raise ConfigurationError(
                f"rdzv_endpoint={endpoint!r} contradicts master_addr={address!r} and use_port={port!r}: "
                "give one of them"
            )
        address, number = given
    return address, number


def _port(name: str, value: Any, *, shown: Any = None) -> int:
    shown = value if shown is None else shown
    if isinstance(value, bool) or not re.fullmatch(r"-?\d+", str(value)):
        raise ConfigurationError(f"{name} must be a port number, not {shown!r:.80}")
    if not 0 <= int(value) <= 65535:
        raise ConfigurationError(f"{name}={shown!r} has no port: ports are 0 (any free one) to 65535")
    return int(value)


def _join_timeout(conf: Any, num_nodes: int) -> float:
    if not conf:
        return _JOIN_TIMEOUT
    if not isinstance(conf, Mapping) or set(conf) - {"timeout", "join_timeout"}:
        raise ConfigurationError(
            f"rdzv_conf={conf!r} is not understood: its one setting here is {{'timeout': seconds}}, how long to "
            "wait for the other machines"
        )
    if num_nodes == 1:
        raise ConfigurationError("rdzv_conf has no effect with num_nodes=1: there is no other machine to wait for")
    return max(_seconds("rdzv_conf", value) for value in conf.values())


def _label(template: Any) -> str:
    names = ", ".join(f"${{{name}}}" for name in LABEL_FIELDS)
    try:
        string.Template(template).substitute(dict.fromkeys(LABEL_FIELDS, ""))
    except (TypeError, ValueError, KeyError) as error:
        raise ConfigurationError(
            f"log_line_prefix_template={template!r} can't be filled in ({error!r}); it may use {names}"
        ) from None
    return str(template)


def _gpus(gpus: Any, device: Any) -> tuple[int, ...]:
    if isinstance(gpus, (int, str)) or not isinstance(gpus, Sequence) or not gpus:
        raise ConfigurationError(f"gpus must be a list of GPU numbers such as [0, 2], not {gpus!r}")
    if device is not None and _device_name(device) != "cuda":
        raise ConfigurationError(f"gpus={list(gpus)} contradicts device={device!r}")
    return tuple(_integer("gpus", index, least=0) for index in gpus)


def _device_name(device: Any) -> Any:
    """`cuda` for `cuda`, for a `torch.device("cuda")`, and for `gpu`."""
    name = getattr(device, "type", device)
    return "cuda" if name == "gpu" else name


def _environment(env: Any) -> dict[str, str]:
    if env is None:
        return {}
    if not isinstance(env, Mapping):
        raise ConfigurationError(f"env must be a dict of environment variables, not {env!r:.80}")
    for name, value in env.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise ConfigurationError(f"env: {name!r} is no name of an environment variable")
        if not isinstance(value, (str, int, float)) or "\0" in str(value):
            raise ConfigurationError(f"env[{name!r}] must be a string, not {value!r:.80}")
    return {name: str(value) for name, value in env.items()}


def _choice(name: str, value: Any, choices: Sequence[str]) -> str:
    value = getattr(value, "value", value)  # the peers' enums
    if value not in choices:
        raise ConfigurationError(f"{name}={value!r} is unknown; choose one of {', '.join(map(repr, choices))}")
    return str(value)


def _integer(name: str, value: Any, *, least: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ConfigurationError(f"{name} must be a whole number, not {value!r:.80}")
    if value.__index__() < least:
        raise ConfigurationError(f"{name}={value!r}: it must be at least {least}")
    return int(value.__index__())


def _seconds(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise ConfigurationError(f"{name} must be a number of seconds above 0, not {value!r:.80}")
    return float(value)
