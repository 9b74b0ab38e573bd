"""Write the .pyi files of `notebook_accel` and of its modules with Accelerate's names, from the table of exports."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from notebook_accel import exports  # noqa: E402

HEAD = "# Written by scripts/write-stubs from notebook_accel/exports.py.\n"


def stub(homes: Mapping[str, str], first: str = "") -> str:
    """Return the text of the stub of a module that has these names from these modules."""
    modules = defaultdict(list)
    for name, home in sorted(homes.items()):
        modules[home].append(name)
    lines = [
        f"from notebook_accel.{home} import (\n" + "".join(f"    {name},\n" for name in names) + ")\n"
        for home, names in sorted(modules.items())
    ]
    listed = "".join(f'    "{name}",\n' for name in sorted(homes))
    return f"{HEAD}\n{''.join(lines)}\n{first}__all__ = [\n{listed}]\n"


PACKAGE = """from IPython.core.interactiveshell import InteractiveShell

__version__: str

def load_ipython_extension(shell: InteractiveShell) -> None: ...
def unload_ipython_extension(shell: InteractiveShell) -> None: ...

"""


def stubs() -> dict[Path, str]:
    """Return the path and the text of each stub."""
    modules = exports.of_accelerate()
    package = ROOT / "notebook_accel"
    found = {package / "__init__.pyi": stub(exports.exported(), PACKAGE)}
    for module, homes in modules.items():
        is_folder = any(other.startswith(f"{module}.") for other in modules)
        path = package.joinpath(*module.split("."))
        found[path / "__init__.pyi" if is_folder else path.with_suffix(".pyi")] = stub(homes)
    return found


def main() -> None:
    """Write all stubs, and remove those that nothing stands for any more."""
    written = stubs()
    for path in {*(ROOT / "notebook_accel").rglob("*.pyi")} - {*written}:
        path.unlink()
    for path, text in written.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
