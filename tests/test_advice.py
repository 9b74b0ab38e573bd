"""Each name of the table of advice is answered with its advice, where a user writes it."""

import importlib
from collections.abc import Callable

import pytest
import torch
from click.testing import CliRunner
from torch.utils.data import DataLoader

import notebook_accel
from notebook_accel import (
    Accelerator,
    AcceleratorState,
    advice,
    data_loader,
    notebook_launcher,
    utils,
)
from notebook_accel.cli.main import main
from notebook_accel.config import deepspeed, keys
from notebook_accel.errors import NotebookAccelError
from notebook_accel.notebook.ipython import magic_commands
from notebook_accel.notebook.magics.command import command as accelerate_magic
from notebook_accel.train.options.enums import Choice
from notebook_accel.train.options.option_class import option_classes


def import_it(name: str) -> None:
    module, _, last = name.rpartition(".")
    importlib.import_module(f"notebook_accel.{module}".rstrip("."))
    exec(f"from notebook_accel{'.' * bool(module)}{module} import {last}")


def use_it(name: str) -> None:
    module, _, last = name.rpartition(".")
    getattr(importlib.import_module(f"notebook_accel.{module}".rstrip(".")), last)()


def configure_deepspeed(name: str) -> None:
    section, _, key = name.rpartition(".")
    if name.startswith("deepspeed_"):
        keys.check("deepspeed_config", {name: "1"}, "deepspeed_config")
    deepspeed.translate({"zero_optimization": {"stage": 2}} | ({section: {key: 1}} if section else {key: 1}))


def launch(name: str) -> None:
    result = CliRunner().invoke(main, ["launch", f"--{name}", "1", "train.py"], terminal_width=1000)
    raise NotebookAccelError(" ".join(result.output.split()))


def magic(name: str) -> None:
    magic_commands.run(accelerate_magic, "%accelerate", f"--{name} 1")


def key(name: str) -> None:
    keys.check(name, "unheard of", name)


WRITERS: dict[str, Callable[[str], object]] = {
    "import": import_it,
    "use": use_it,
    "DeepSpeed": configure_deepspeed,
    "AcceleratorState": lambda name: AcceleratorState(**{name: 1}),
    "notebook_launcher": lambda name: notebook_launcher(print, **{name: 1}),
    "Accelerator": lambda name: Accelerator(**{name: 1}),
    "options of an Accelerator": lambda name: utils.ProjectConfiguration(**{name: 1}),
    "prepared loader": lambda name: data_loader.DataLoaderShard(DataLoader([1]), **{name: 1}),
    "set_module_tensor_to_device": lambda name: utils.set_module_tensor_to_device(
        torch.nn.Linear(1, 1), "weight", "cpu", **{name: 1}
    ),
    "notebook-accel launch": launch,
    "%accelerate": magic,
    "configuration file": key,
    "distributed_type": lambda name: keys.check("distributed_type", name, "distributed_type"),
    "fsdp_state_dict_type": lambda name: keys.check("fsdp_state_dict_type", name, "fsdp_state_dict_type"),
    **{kind.__name__: lambda name, kind=kind: kind(**{name: 1}) for kind in option_classes()},  # type: ignore[misc]
    **{kind.__name__: lambda name, kind=kind: getattr(kind, name) for kind in Choice.__subclasses__()},  # type: ignore[misc]
}
"""How a user writes a name in each place of the table."""


def written(row: advice.Row) -> list[str]:
    """The names of a row, each beginning with an end that nobody uses."""
    names = row.written.split()
    if row.where == "configuration file":  # keys that are known, of which only some values are refused
        return [key for key in keys.NEUTRAL if advice.row_of(key, row.where) is row]
    return [f"{name[:-1]}unheard_of" if name.endswith("*") else name for name in names]


@pytest.mark.parametrize("row", advice.TABLE, ids=lambda row: f"{row.where}-{row.written.split()[0]}")
def test_each_name_is_answered_where_it_is_written(row: advice.Row) -> None:
    assert written(row)
    for name in written(row):
        with pytest.raises((NotebookAccelError, AttributeError)) as caught:
            WRITERS[row.where](name)
        text = row.instead.replace("{name}", name).replace("{value}", "1")
        assert text in str(caught.value), (name, str(caught.value))


def test_no_name_is_listed_twice_for_a_place() -> None:
    listed = [(row.where, name) for row in advice.TABLE for name in row.written.split()]
    assert len(listed) == len({*listed})


def test_a_name_that_nobody_has_gets_no_advice() -> None:
    assert not any(advice.instead_of("xyzzy", row.where) for row in advice.TABLE)
    assert not advice.of_import("xyzzy")
    assert not hasattr(notebook_accel, "xyzzy")
