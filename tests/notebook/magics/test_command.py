import subprocess
import sys
from typing import Any

from notebook_accel.notebook.magics import accelerate

REGISTER = """
import sys
from IPython.core.interactiveshell import InteractiveShell
from notebook_accel.notebook.magics import accelerate
shell = InteractiveShell.instance()
accelerate.register(shell)
print("click" in sys.modules)
print(shell.object_inspect("%accelerate")["docstring"].startswith("Usage: %accelerate"), "click" in sys.modules)
"""


def test_click_is_imported_when_a_magic_is_used() -> None:
    done = subprocess.run([sys.executable, "-c", REGISTER], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["False", "True True"]


def test_the_page_of_each_magic_has_its_options_and_its_subcommands_with_their_arguments() -> None:
    assert "  debug [RANK] [COMMANDS]  Opens pdb" in accelerate.page("%accelerate")
    assert "  -n, --num-processes N  The number of ranks" in accelerate.page("%%accelerate")


def test_options_of_cells_are_completed() -> None:
    shell: Any = None  # only variables and ranks are looked up in it
    assert accelerate.complete("%%accelerate", shell, ["-n", "2"], "--no_") == ["--no-block"]
