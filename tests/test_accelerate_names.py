"""Import lines of the peer's modules, ported by changing one word."""

import subprocess
import sys

import pytest

import notebook_accel
from notebook_accel import accelerate_names

LINES = [f"from accelerate.{module} import {', '.join(names)}" for module, names in accelerate_names._NAMES.items()]


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
    assert all(value.__module__.startswith("notebook_accel.") for value in found.values())
    exported = [value for name, value in found.items() if name in notebook_accel.__all__]
    assert all(value is getattr(notebook_accel, value.__name__) for value in exported)  # type: ignore[attr-defined]


def test_what_is_not_there_is_an_import_error() -> None:
    with pytest.raises(ImportError, match="cannot import name 'DeepSpeedEngineWrapper'"):
        exec("from notebook_accel.utils.other import DeepSpeedEngineWrapper")


def test_whoever_looks_through_all_modules_imports_nothing() -> None:
    code = """if True:
        import notebook_accel, sys
        for module in list(sys.modules.values()):
            for name in ("__file__", "__warningregistry__", "whatever"):
                getattr(module, name, None)
        assert 'notebook_accel.train' not in sys.modules
        from notebook_accel.logging import get_logger
        assert 'notebook_accel.utils' not in sys.modules
    """
    subprocess.run([sys.executable, "-c", code], check=True)
