"""The prompts of `notebook-accel config`, for settings that the hardware does not decide, with working defaults."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import click

from notebook_accel.config import LaunchConfig, keys
from notebook_accel.config.settings import LOOPBACK
from notebook_accel.errors import ConfigurationError
from notebook_accel.hardware import DEFAULT_CPU_RANKS, Hardware


def describe(found: Hardware) -> str:
    """The hardware, as text."""
    cores = f"{found.cores} core{'s' if found.cores > 1 else ''}"
    names = Counter(each.name for row, listing in found.listings.items() if row != "cpu" for each in listing.usable)
    parts = [f"{count} × {name}" for name, count in names.items()]
    hidden = f" (GPUs can't be used: {found.hidden_gpus})" if found.hidden_gpus else ""
    return ", ".join([*parts, f"{cores}{hidden}"] if parts else [f"no GPU{hidden}", cores])


def defaults(found: Hardware) -> dict[str, Any]:
    """Keys and values that make full use of the hardware."""
    if found.gpus:
        count = len(found.gpus)
        return {
            "num_processes": count,
            "mixed_precision": "no",
            "distributed_type": "MULTI_GPU" if count > 1 else "NO",
            **({} if count > 1 else {"device": "cuda"}),
        }
    if found.mps:
        return {"num_processes": 1, "mixed_precision": "no", "distributed_type": "NO", "device": "mps"}
    return {"num_processes": min(found.cores, DEFAULT_CPU_RANKS), "mixed_precision": "no", "use_cpu": True}


def ask(found: Hardware, now: LaunchConfig, given: Mapping[str, Any]) -> dict[str, Any]:
    """Prompts for the settings that matter on this hardware and are not given as options.

    Args:
        found: The hardware.
        now: The settings if the user accepts every default.
        given: The settings given as options.

    Returns:
        The answers, by key.

    Raises:
        ConfigurationError: There is no terminal to prompt in.
    """
    answers: dict[str, Any] = {}

    def question(key: str, text: str, offered: Any, most: int | None = None) -> Any:
        if key not in given:
            answers[key] = _ask(key, text, offered, most)
        return answers.get(key, given.get(key))

    try:
        count = question("num_machines", "Number of machines", now.num_nodes)
        if count > 1 and not given.get("cluster", now.cluster):
            last = count - 1
            question("machine_rank", f"Rank of this machine, 0 to {last}", min(now.node_rank, last), last)
            known = None if now.master_addr in LOOPBACK else now.master_addr
            question("main_process_ip", "Address of the machine with rank 0", known)
            question("main_process_port", "Port of the rendezvous", now.port)
        machines = int(answers.get("num_machines", given.get("num_machines", 1)))
        _ask_for_ranks(found, now, given, machines, question)
        choices = "no, fp16, bf16, fp8" if found.gpus else "no, bf16"
        question("mixed_precision", f"Mixed precision ({choices})", now.mixed_precision)
    except click.Abort as ended:
        if not isinstance(ended.__context__, EOFError) or sys.stdin.isatty():
            click.echo()  # after the prompt
            raise  # an interrupt
        raise ConfigurationError(
            "there is no terminal to prompt in: add --yes, and options such as --num_processes 2 to override what is "
            "detected. Nothing was saved."
        ) from None
    return answers


def _ask_for_ranks(
    found: Hardware,
    now: LaunchConfig,
    given: Mapping[str, Any],
    machines: int,
    question: Callable[[str, str, Any], Any],
) -> None:
    on_all = " on all machines together" if machines > 1 else ""
    if len(found.gpus) > 1 and not given.get("use_cpu"):
        before = ",".join(map(str, now.gpus)) if now.gpus else "all"
        chosen = question("gpu_ids", "GPUs to use here (all, or numbers such as 0,2)", before) or "all"
        count = len(found.gpus) if chosen == "all" else len(chosen.split(","))
        if chosen == before and now.num_processes:
            count = now.num_processes
        total = question("num_processes", f"Ranks{on_all}", count * machines)
        if total is None or total > 1:
            offered = "FSDP" if now.strategy == "fsdp" else "MULTI_GPU"
            question("distributed_type", "MULTI_GPU: a whole model on each GPU; FSDP: a shard of it", offered)
    elif not found.gpus and not found.mps:
        question("num_processes", f"Ranks on the CPU{on_all}", (now.num_processes or 1) * machines)


def _ask(key: str, text: str, offered: Any, most: int | None) -> Any:
    """Prompts until the answer is valid; a number may be at most `most`."""
    while True:
        answer = click.prompt(text, default=offered, type=str)
        try:
            value = keys.check(key, answer, key)
            if most is not None and value > most:
                raise ConfigurationError(f"{key} must be at most {most}")
        except ConfigurationError as error:
            click.echo(f"error: {error}")
        else:
            return value
