"""That the fake of amdsmi, ROCm's interface to its GPUs, has the functions and numbers of the real one.

It is here because Ray, which lives in another environment, imports amdsmi wherever that is installed, and fails without
ROCm's driver.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
from pathlib import Path
from typing import Any

from tests.hardware.fakes import FakeAmdSmi, FakeGpu

INSTINCT = FakeGpu("AMD Instinct MI300X", 192 << 30, {7: 3 << 30}, utilization=12, temperature=50, power=400, energy=1)


def test_the_fake_of_amdsmi_has_the_functions_and_numbers_of_the_real_one() -> None:
    """The real one can't be imported without its library, so its source is read."""
    spec = importlib.util.find_spec("amdsmi")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent
    functions, classes = definitions(folder / "amdsmi_interface.py")
    errors = definitions(folder / "amdsmi_exception.py")[1]
    numbers: dict[str, Any] = {}
    for node in ast.parse((folder / "amdsmi_wrapper.py").read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            numbers |= {target.id: node.value.value for target in node.targets if isinstance(target, ast.Name)}
    for name, fake in vars(FakeAmdSmi).items():
        if name.startswith("amdsmi_"):
            own = list(inspect.signature(fake).parameters)[1:]
            assert own == [each.arg for each in functions[name].args.args], name
        elif isinstance(fake, type) and issubclass(fake, Exception):
            assert name in errors
        elif isinstance(fake, type):
            for member in fake.__members__.values():  # type: ignore[attr-defined]
                [value] = [each.value for each in assignments(classes[name]) if each.targets[0].id == member.name]
                assert member == numbers[value.attr], member
    for name in ("NOT_SUPPORTED", "DRIVER_NOT_LOADED", "NOT_INIT"):
        assert getattr(FakeAmdSmi, name) == numbers[f"AMDSMI_STATUS_{name}"]
    library = FakeAmdSmi([INSTINCT])
    for name in ("kfd_info", "activity", "power_info", "power_cap_info", "energy_count"):
        full = next(each for each in (f"amdsmi_get_gpu_{name}", f"amdsmi_get_{name}") if hasattr(library, each))
        assert getattr(library, full)(0).keys() <= texts(functions[full]), full


def definitions(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The functions and the classes of a file, by name."""
    body = ast.parse(file.read_text()).body
    return (
        {node.name: node for node in body if isinstance(node, ast.FunctionDef)},
        {node.name: node for node in body if isinstance(node, ast.ClassDef)},
    )


def assignments(node: Any) -> list[Any]:
    return [each for each in node.body if isinstance(each, ast.Assign)]


def texts(node: Any) -> set[str]:
    return {each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)}
