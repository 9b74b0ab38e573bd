"""`notebook-accel config`: prompts for the settings of this machine, shows them, and changes them."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from notebook_accel import hardware
from notebook_accel.config import LaunchConfig, click_options, file, keys
from notebook_accel.config.keys import from_config
from notebook_accel.config.layers import Layer, merge
from notebook_accel.config.resolve import base_layers
from notebook_accel.config.settings import LOOPBACK
from notebook_accel.errors import ConfigurationError, HardwareError
from notebook_accel.hardware import DEFAULT_CPU_RANKS, Hardware
from notebook_accel.launch.job.text import aligned
from notebook_accel.launch.plan import plan
from notebook_accel.launch.plan.plan import preview
from notebook_accel.rank_spans import counted

_SHOWN = {row.key: row for row in keys.KEYS.values() if row.config}
"""Keys that have an option. They are shown even if they are not set."""
_OPTIONS: list[click.Parameter] = [
    click_options.option(click_options.spellings(name), row.kind, row.help) for name, row in _SHOWN.items()
]
_file_option = click.option(
    "--config_file",
    "--config-file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to use instead of the default one.",
)


@click.group(invoke_without_command=True, params=_OPTIONS)
@_file_option
@click.option("--yes", "-y", is_flag=True, help="Do not prompt: take what the options leave open from the hardware.")
@click.pass_context
def command(context: click.Context, /, path: Path | None, yes: bool, **given: str | None) -> None:
    """Prompt for the settings of this machine, and save them.

    They apply to every launch, from a notebook or the command line, that does not override them. Settings that are
    given as options are not prompted for.
    """
    context.obj = path
    values = _checked({name: text for name, text in given.items() if text is not None})
    if context.invoked_subcommand is not None:
        if values or yes:
            wrong = "--yes" if yes else f"--{next(iter(values))}"
            raise ConfigurationError(f"{wrong} does not go with config {context.invoked_subcommand}")
        return
    where = path or file.location(os.environ)
    found = hardware.detect()
    before = {**defaults(found), **_flat(_read(where))}
    click.echo(f"found: {describe(found)}")
    answers = values if yes else {**values, **ask(found, _overlay(before, values, where), values)}
    _save(where, _overlay(before, answers, where))


@command.command()
@_file_option
@click.option("--yes", "-y", is_flag=True, help="Replace an existing file.")
@click.option(
    "--mixed_precision", "--mixed-precision", "precision", metavar="NAME", help="The precision of every Accelerator."
)
@click.pass_obj
def default(parent: Path | None, path: Path | None, yes: bool, precision: str | None) -> None:
    """Save settings for the detected hardware, without prompting."""
    where = path or parent or file.location(os.environ)
    if where.exists() and not yes:
        raise ConfigurationError(f"{where} already exists: see config show, or replace it with config default --yes")
    values = _checked({} if precision is None else {"mixed_precision": precision})
    _save(where, _overlay(defaults(hardware.detect()), values, where))


@command.command()
@_file_option
@click.pass_obj
def show(parent: Path | None, path: Path | None) -> None:
    """Show each setting and the source of its value."""
    named = path or parent
    where = named or file.location(os.environ)
    click.echo(f"{where}{'' if where.exists() else ' (not there)'}\n")
    config = merge(base_layers(os.environ, named))
    found = from_config(config)
    rows = [(name, *_value_and_source(found, name)) for name in dict.fromkeys([*_SHOWN, *found])]
    click.echo("\n".join(aligned([(*row, source.replace(str(where), "the file")) for *row, source in rows])))
    click.echo("".join(f"\n{notice}" for notice in config.notices) + f"\n{_preview(config)}")


@command.command("set")
@_file_option
@click.argument("settings", nargs=-1, required=True, metavar="KEY=VALUE...")
@click.pass_obj
def set_(parent: Path | None, path: Path | None, settings: tuple[str, ...]) -> None:
    """Change settings in the file; KEY= removes one."""
    where = path or parent or file.location(os.environ)
    texts: dict[str, str] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise ConfigurationError(f"{setting!r} must be written as KEY=VALUE, such as mixed_precision=bf16")
        texts[key.strip()] = text.strip()
    removed = [key for key, text in texts.items() if not text]
    values = _checked({key: text for key, text in texts.items() if text})
    _save(where, _overlay(_without(_flat(_read(where)), removed, where), values, where))


@command.command()
@_file_option
@click.pass_obj
def update(parent: Path | None, path: Path | None) -> None:
    """Rewrite the file in the current format, without keys that have no effect."""
    where = path or parent or file.location(os.environ)
    found = file.read(where)
    if found is None:
        raise ConfigurationError(f"{where} does not exist: create it with notebook-accel config")
    _save(where, _overlay(found, {}, where))


def _checked(texts: Mapping[str, str]) -> dict[str, Any]:
    """Parses and checks values from the command line."""
    found = {key: keys.check(key, text, key) for key, text in texts.items()}
    keys.refuse_fsdp1_keys(found)
    return found


def _read(path: Path) -> LaunchConfig:
    found = file.read(path)
    return merge([] if found is None else [file.layer(found, path)])


def _flat(config: LaunchConfig) -> dict[str, Any]:
    return {key: each.value for key, each in from_config(config).items()}


def _overlay(before: Mapping[str, Any], values: Mapping[str, Any], where: Path) -> LaunchConfig:
    """The configuration made from some keys, overridden by others."""
    machines = {key: before[key] for key in ("num_machines", "cluster") if key in before and "num_processes" in values}
    above = file.layer({**machines, **values}, where)  # num_processes counts the processes on all machines
    return merge([file.layer(before, where), Layer("file", above.values, above.locations)])


def _without(found: Mapping[str, Any], removed: list[str], where: Path) -> dict[str, Any]:
    """The entries without the given keys and without other keys for the same settings."""
    entries = from_config(merge([file.layer(found, where)]))
    unset = [key for key in removed if key not in entries]
    if unset:
        keys.check(unset[0], None, unset[0])  # raises an error if the key is unknown
        raise ConfigurationError(f"{unset[0]} is not set in {where}")
    fields = {entries[key].field for key in removed}
    return {key: each.value for key, each in entries.items() if each.field not in fields}


def _save(where: Path, config: LaunchConfig) -> None:
    found = _flat(config)
    file.write(where, found)
    click.echo(f"saved in {where}:")
    for key, value in sorted(found.items()):
        click.echo(f"  {key}: {_text(value)}")
    click.echo(_preview(config))
    named = "" if where == file.location(os.environ) else f"--config_file {where} "
    click.echo(f"next: notebook-accel launch {named}train.py, or notebook_launcher(train) in a notebook")


def _preview(config: LaunchConfig) -> str:
    """Previews a launch here. The file may be for another machine, so a launch that can't work is not an error."""
    if config.cluster:
        ranks = "as many ranks as fit" if config.num_processes is None else f"{config.num_processes} ranks"
        machines = counted(config.num_nodes, "machine")
        return f"a launch from a notebook: {ranks} on {machines} of the cluster {config.cluster}"
    try:
        found = hardware.detect({**os.environ, **config.env})
        return preview(plan.make(config, found, plan.engine_for(config, found)))
    except (ConfigurationError, HardwareError) as error:
        return f"a launch on this machine would be refused: {error}"


def _value_and_source(found: Mapping[str, Any], name: str) -> tuple[str, str]:
    if name in found:
        return _text(found[name].value), found[name].source
    default = _SHOWN[name].default
    return "detected" if default is None else _text(default) or "none", "default"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return (
        ", ".join(value) if isinstance(value, Mapping) else str(value)
    )  # only the names of variables, because their values may be secret


def describe(found: Hardware) -> str:
    """The hardware, as text."""
    cores = counted(found.cores, "core")
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
