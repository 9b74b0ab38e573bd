"""`notebook-accel config`: prompts for the settings of this machine, shows them, and changes them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from notebook_accel import hardware
from notebook_accel.cli.config import questions
from notebook_accel.config import LaunchConfig, click_options, file, keys
from notebook_accel.config.layers import Layer, merge
from notebook_accel.config.resolve import base_layers
from notebook_accel.config.translation import from_config
from notebook_accel.errors import ConfigurationError, HardwareError
from notebook_accel.launch.plan import plan
from notebook_accel.launch.plan.plan import preview

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
    before = {**questions.defaults(found), **_flat(_read(where))}
    click.echo(f"found: {questions.describe(found)}")
    answers = values if yes else {**values, **questions.ask(found, _overlay(before, values, where), values)}
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
    _save(where, _overlay(questions.defaults(hardware.detect()), values, where))


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
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, value, source in rows:
        click.echo(f"{name:<{widths[0]}}  {value:<{widths[1]}}  {source.replace(str(where), 'the file')}")
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
        machines = f"{config.num_nodes} machine{'s' if config.num_nodes > 1 else ''}"
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
    return "as found" if default is None else _text(default) or "none", "default"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return (
        ", ".join(value) if isinstance(value, Mapping) else str(value)
    )  # only the names of variables, because their values may be secret
