"""Import lines of the peer's modules, ported by changing one word."""

import subprocess
import sys
from types import ModuleType

import accelerate.utils
import cloudpickle
import pytest

import notebook_accel
from notebook_accel import exports

MODULES = exports.accelerate_modules()
# Ours also has there what users import from Accelerate's modules below `utils`.
MODULES["utils"] = {name: home for name, home in MODULES["utils"].items() if hasattr(accelerate.utils, name)}
LINES = [f"from accelerate.{module} import {', '.join(names)}" for module, names in MODULES.items()]


def ported(line: str) -> str:
    return line.replace("accelerate", "notebook_accel", 1)


@pytest.mark.parametrize("line", LINES)
def test_a_line_is_ported_by_changing_one_word(line: str) -> None:
    theirs: dict[str, object] = {}
    ours: dict[str, object] = {}
    exec(line, theirs)  # every name is one of the peer's
    exec(ported(line), ours)
    assert ours.keys() == theirs.keys()
    found = {name: value for name, value in ours.items() if name != "__builtins__"}
    for name, value in found.items():
        if isinstance(value, str) and value.startswith("/"):
            continue  # each package has a settings file of its own
        is_constant = isinstance(value, (str, list, dict))
        assert value == theirs[name] if is_constant else value.__module__.startswith("notebook_accel.")
    exported = [name for name in found if name in notebook_accel.__all__]
    assert all(found[name] is getattr(notebook_accel, name) for name in exported)


def test_what_accelerate_does_not_have_either_is_an_import_error() -> None:
    with pytest.raises(ImportError, match="cannot import name 'DeepSped'"):
        exec("from notebook_accel.utils.other import DeepSped")


@pytest.mark.parametrize(
    ("line", "meant"),
    [("from notebook_accel import notebook_launch", "notebook_launcher"),
     ("from notebook_accel import Acelerator", "Accelerator"),
     ("from notebook_accel.utils import set_sed", "set_seed")],
)  # fmt: skip
def test_an_import_of_a_misspelled_name_names_the_one_that_was_meant(line: str, meant: str) -> None:
    with pytest.raises(ImportError, match=rf"cannot import .+; did you mean {meant}\?"):
        exec(line)


def test_whoever_looks_through_all_modules_imports_nothing() -> None:
    code = """if True:
        import notebook_accel, sys
        for module in list(sys.modules.values()):
            for name in ("__file__", "__warningregistry__", "whatever"):
                getattr(module, name, None)
        assert 'notebook_accel.train' not in sys.modules
        from notebook_accel.logging import get_logger
        assert 'notebook_accel.launch.driver' not in sys.modules
    """
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("module", [notebook_accel.utils, notebook_accel.utils.operations, notebook_accel.logging])
def test_a_function_that_uses_a_module_is_sent_with_its_name(module: ModuleType) -> None:
    function = cloudpickle.loads(cloudpickle.dumps(lambda: module))
    assert function() is module
