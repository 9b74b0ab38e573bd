"""A plugin of pytest that runs Accelerate's own tests with this package under Accelerate's name.

    pytest -p tests.train.parity.as_accelerate FOLDER/tests/test_accelerator.py

Its helpers for tests, `accelerate.test_utils`, are Accelerate's own files, which then import this package's names.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import accelerate

import notebook_accel
from notebook_accel import AcceleratorState, GradientState, PartialState, exports

INSTALLED = Path(accelerate.__file__).parent
SHARED = (PartialState, AcceleratorState, GradientState)
"""Classes whose `_shared_state` the tests empty."""


def install() -> None:
    """Puts this package and its modules in the place of Accelerate's."""
    own = {name: _own(name) for name in exports.of_accelerate()}
    own["load_checkpoint_in_model"] = accelerate.load_checkpoint_in_model  # the package's hands over to it
    load = exports.load

    def loaded(name: str, module: str) -> Any:
        return own[name] if module.startswith("accelerate.") else load(name, module)

    exports.load = loaded  # type: ignore[assignment]  # since `accelerate` no longer leads there
    for name in [name for name in sys.modules if name.partition(".")[0] == "accelerate"]:
        del sys.modules[name]
    sys.modules["accelerate"] = notebook_accel
    for name, module in [*sys.modules.items()]:
        if name.startswith("notebook_accel.") and isinstance(module, type(notebook_accel.utils)):
            sys.modules["accelerate" + name.removeprefix("notebook_accel")] = module
    for kind in SHARED:
        kind._shared_state = {}  # type: ignore[attr-defined]
    helpers = ModuleType("accelerate.test_utils")
    helpers.__path__ = [str(INSTALLED / "test_utils")]
    helpers.__package__ = "accelerate.test_utils"
    sys.modules["accelerate.test_utils"] = helpers
    for name in [each for each in sys.modules if each.startswith("accelerate.test_utils.")]:
        del sys.modules[name]
    code = (INSTALLED / "test_utils" / "__init__.py").read_text(encoding="utf-8")
    exec(compile(code, "accelerate/test_utils/__init__.py", "exec"), vars(helpers))


def _own(name: str) -> Any:
    origin = exports.of_accelerate()[name]
    return getattr(importlib.import_module(exports.path_of(origin)), name)


install()
