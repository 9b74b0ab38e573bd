"""What public code imports of Accelerate is here, or Accelerate's own, or refused with advice; nothing is missing."""

from __future__ import annotations

import importlib
import pickle
import runpy
from pathlib import Path
from typing import Any

import accelerate
import pytest

import notebook_accel
from notebook_accel import UnsupportedNameError, advice, exports

ROOT = Path(__file__).parents[3]
GENERATE = runpy.run_path(str(ROOT / "scripts" / "generate.py"))
RECORD = GENERATE["recorded_imports"]()
"""By section, pairs of a number of files and what each imports: pairs of a module and a name."""
NAMES = sorted({pair for section in RECORD.values() for _, pairs in section for pair in pairs})
ANSWERED = {"sample": 0.98, "by module": 0.9}
"""The least share of files whose names can all be imported, by section."""
ACCELERATE = Path(accelerate.__file__).parent
ONLY_WITH_OTHERS = {
    *("DeepSpeedEngineWrapper", "DeepSpeedOptimizerWrapper", "DeepSpeedSchedulerWrapper", "DummyOptim"),
    *("DummyScheduler", "MegatronEngine", "MegatronLMOptimizerWrapper", "MegatronLMSchedulerWrapper"),
    *("gather_across_data_parallel_groups", "megatron_lm_initialize", "megatron_lm_prepare_data_loader"),
    *("megatron_lm_prepare_model_optimizer_scheduler", "megatron_lm_prepare_optimizer"),
    "megatron_lm_prepare_scheduler",
    "memory_utils",
}
"""Names that Accelerate has only where DeepSpeed or Megatron-LM can be used, and a module that warns."""
FILES = [path.relative_to(ACCELERATE).with_suffix("") for path in ACCELERATE.rglob("*.py")]
LEFT_OUT = ("accelerate.test_utils.scripts", "accelerate.memory_utils", "accelerate.utils.rich")
"""Modules that warn when they are imported, or that need Rich to be enabled, and the scripts."""
NAMED = {".".join(("accelerate", *file.parts)).removesuffix(".__init__") for file in FILES}
MODULES = sorted(name for name in NAMED if not name.startswith(LEFT_OUT))
INNER = [name for name in MODULES if "test_utils" not in name and "commands" not in name]
GENERIC = {"initialize", "prepare_data_loader", "prepare_optimizer", "prepare_scheduler", "TYPE_CHECKING", "ABC", "F"}
"""Names that say too little to be refused wherever they stand."""


def outcome(module: str, name: str) -> str:
    """What an import of a name does here."""
    found: dict[str, Any] = {}
    try:
        exec(f"from {f'notebook_accel.{module}'.rstrip('.')} import {name}", found)
    except UnsupportedNameError:
        return "refused"
    except ImportError:
        return "missing"
    if isinstance(found[name], advice.StandIn):
        return "use"
    return "accelerate" if name in exports.of_accelerate() else "works"


@pytest.mark.parametrize(("module", "name"), NAMES, ids=lambda text: text or "accelerate")
def test_a_recorded_name_does_what_the_table_says(module: str, name: str) -> None:
    assert outcome(module, name) == GENERATE["outcome"](module, name)


@pytest.mark.parametrize("section", ANSWERED)
def test_nearly_all_files_can_import_every_name(section: str) -> None:
    total = GENERATE["share"](RECORD[section])
    assert total > 100
    assert GENERATE["share"](RECORD[section], GENERATE["ANSWERED"]) / total >= ANSWERED[section]


def public(module: object) -> set[str]:
    """What `from module import *` would give, without what the module itself imports as a whole."""
    return {name for name, value in vars(module).items() if name[0] != "_" and not isinstance(value, type(exports))}


@pytest.mark.parametrize("module", ["", "utils"])
def test_every_public_name_of_accelerates_is_here_or_refused(module: str) -> None:
    theirs = public(importlib.import_module(f"accelerate.{module}".rstrip("."))) - {"is_rich_available"}
    assert {name for name in theirs if outcome(module, name) == "missing"} == set()


def test_no_name_is_refused_twice_or_both_here_and_refused() -> None:
    listed = [name for row in advice.TABLE if row.where in ("import", "use") for name in row.names]
    listed += [name for row in exports.ACCELERATES for name in row.names]
    assert len(listed) == len({*listed})
    assert {name for row in exports.TABLE for name in row.names} & {*listed} == set()


def test_every_refused_name_is_one_of_accelerates() -> None:
    theirs = {name for module in MODULES for name in vars(importlib.import_module(module))}
    assert (advice.names("import") | advice.names("use")) - theirs - ONLY_WITH_OTHERS == set()


@pytest.mark.parametrize("module", INNER)
def test_what_a_module_of_accelerates_defines_is_here_or_refused(module: str) -> None:
    theirs = vars(importlib.import_module(module)).items()
    own = {name for name, value in theirs if getattr(value, "__module__", None) == module or name.isupper()}
    inner = module.partition(".")[2]
    assert {name for name in own - GENERIC if name[0] != "_" and outcome(inner, name) == "missing"} == set()


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("import notebook_accel.commands.config.default", "`notebook-accel config`"),
        ("from notebook_accel.commands.estimate import create_empty_model", "`notebook-accel launch`"),
        ("from notebook_accel.test_utils.testing import require_datasets", "Import it from Accelerate"),
        ("from notebook_accel.memory_utils import find_executable_batch_size", "from notebook_accel.utils"),
    ],
)
def test_what_is_refused_when_it_is_imported_comes_with_advice(line: str, advice: str) -> None:
    with pytest.raises(ImportError) as caught:
        exec(line)
    assert isinstance(caught.value, UnsupportedNameError)
    assert advice in str(caught.value)
    assert str(caught.value).startswith(f"notebook_accel has no {caught.value.name}, which belongs to ")


USED = [
    ("utils", "DummyOptim", "runs as FSDP2"),
    ("utils.deepspeed", "DummyScheduler", "runs as FSDP2"),
    ("inference", "prepare_pippy", "torch.distributed.pipelining"),
    ("utils", "MegatronLMPlugin", "TorchTensorParallelPlugin"),
    ("", "MegatronLMPlugin", "TorchTensorParallelPlugin"),
    ("utils", "FP8RecipeKwargs", "AORecipeKwargs"),
    ("commands.launch", "launch_command", "`notebook-accel launch`"),
    ("commands.launch", "simple_launcher", "`notebook-accel launch`"),
    ("utils.operations", "verify_operation", "Copy the part that you need"),
]


@pytest.mark.parametrize(("module", "name", "advice"), USED)
def test_what_is_refused_when_it_is_used_can_be_imported_and_compared(module: str, name: str, advice: str) -> None:
    found: dict[str, Any] = {}
    exec(f"from {f'notebook_accel.{module}'.rstrip('.')} import {name}", found)
    stand_in = found[name]
    assert not isinstance(1, stand_in)
    if "commands" not in module:
        assert pickle.loads(pickle.dumps(stand_in)) is stand_in
    with pytest.raises(UnsupportedNameError) as caught:
        stand_in(1, of="anything")
    assert advice in str(caught.value)
    assert str(caught.value).startswith(f"notebook_accel has no {name}, which belongs to ")
    with pytest.raises(AttributeError) as missing:
        _ = stand_in.anything
    assert advice in str(missing.value)


@pytest.mark.parametrize("module", [notebook_accel, notebook_accel.utils, notebook_accel.utils.memory])
def test_a_refused_import_is_no_attribute_and_its_error_has_the_advice(module: object) -> None:
    assert not hasattr(module, "memory_utils")
    with pytest.raises(AttributeError, match=r"from notebook_accel\.utils"):
        _ = module.memory_utils  # type: ignore[attr-defined]


def test_the_package_has_accelerates_modules_as_attributes() -> None:
    import notebook_accel.utils.operations as operations

    assert notebook_accel.utils.operations is operations
    assert callable(notebook_accel.utils.set_seed)
    assert notebook_accel.state.PartialState is notebook_accel.PartialState
    assert importlib.util.find_spec("notebook_accel.utils.operations") is operations.__spec__
    assert callable(notebook_accel.utils.tqdm)
    with pytest.raises(ModuleNotFoundError, match=r"notebook_accel\.utils\.nothing"):
        importlib.import_module("notebook_accel.utils.nothing")


def test_the_documents_say_what_the_tables_say() -> None:
    for path, text in GENERATE["documents"]().items():
        assert path.read_text(encoding="utf-8") == text, "run scripts/generate"
