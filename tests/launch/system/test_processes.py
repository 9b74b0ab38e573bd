"""What processes of ours import, where there is more than one to choose from."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import notebook_accel
from notebook_accel.errors import LaunchError
from notebook_accel.launch import engines
from notebook_accel.launch.system import processes

LAUNCH = """
import json, os, sys
ours, older = sys.argv[1:]
is_copy = lambda folder: os.path.exists(os.path.join(folder, "notebook_accel", "__init__.py"))
sys.path[:] = [*(folder for folder in sys.path if not is_copy(folder)), ours]
from notebook_accel import notebook_launcher
sys.path.insert(0, older)

def found():
    import random, sys
    import notebook_accel.launch.rank.main
    return random.__file__, notebook_accel.__file__, notebook_accel.launch.rank.main.__file__, sys.path

print(json.dumps([notebook_launcher(found, num_processes=1, device="cpu")[0], sys.path]))
"""


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that an older version is installed to, which has none of what a launch needs."""
    folder = tmp_path_factory.mktemp("older")
    wheel = folder / "notebook_accel-0.0.1-py3-none-any.whl"
    about = "notebook_accel-0.0.1.dist-info"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("notebook_accel/__init__.py", "__version__ = '0.0.1'\n")
        file.writestr("notebook_accel/launch/__init__.py", "")
        file.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: notebook-accel\nVersion: 0.0.1\n")
        file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{about}/RECORD", "")
    pip = [sys.executable, "-m", "pip", "--isolated", "install", "--no-index", "--no-deps", "--quiet"]
    subprocess.run([*pip, "--target", folder / "site", wheel], check=True)
    return folder / "site"


@pytest.mark.parametrize("engine", ["forkserver", "spawn"])
def test_ranks_have_the_copy_that_has_launched_them_and_not_its_neighbors(
    tmp_path: Path, older: Path, engine: str
) -> None:
    """With an older copy first on the path; and the one in use last, in a folder with a `random` of its own."""
    ours = tmp_path / "ours"
    ours.mkdir()
    (ours / "notebook_accel").symlink_to(Path(notebook_accel.__file__).parent)
    (ours / "random.py").write_text("raise RuntimeError('the wrong one')")
    script = tmp_path / "launch.py"
    script.write_text(LAUNCH)
    done = subprocess.run(
        [sys.executable, script, ours, older],
        cwd=tmp_path,
        env={**os.environ, engines.VARIABLE: engine},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (standard, package, module, path), notebook = json.loads(done.stdout.splitlines()[-1])
    assert os.path.dirname(standard) == os.path.dirname(os.__file__)
    assert package == str(ours / "notebook_accel" / "__init__.py")
    assert module == str(ours / "notebook_accel" / "launch" / "rank" / "main.py")
    assert path == notebook
    assert notebook[0] == str(older)
    assert notebook[-1] == str(ours)


def test_no_process_of_ours_imports_what_lies_in_its_folder(tmp_path: Path) -> None:
    """Not even what it needs before it has its path."""
    for name in ("importlib", "json", "random"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('the wrong one')")
    begun = processes.command("builtins:print", ["begun"])
    assert subprocess.run(begun, cwd=tmp_path, capture_output=True, text=True, check=True).stdout == "begun\n"


def test_a_path_object_on_the_path_is_skipped_as_python_skips_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [tmp_path, None, b"/", *sys.path])
    begun = processes.command("builtins:print", ["begun"])
    assert subprocess.run(begun, capture_output=True, text=True, check=True).stdout == "begun\n"


def test_a_process_can_wait_for_its_children_though_its_parent_ignores_theirs() -> None:
    ignore = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )
    show = processes.command("builtins:exec", ["import signal; print(signal.getsignal(signal.SIGCHLD).name)"])
    begun = [sys.executable, "-c", ignore, *show]
    assert subprocess.run(begun, capture_output=True, text=True, check=True).stdout == "SIG_DFL\n"


@pytest.mark.parametrize("executable", [None, ""])
def test_a_process_that_does_not_know_its_python_says_so(
    executable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    with pytest.raises(LaunchError, match=f"sys.executable is {executable!r}, .*set it to the path"):
        processes.command("module:function", [])
