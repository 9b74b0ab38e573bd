"""What only the notebook's machine has. Its folder is on a file system of its own, which the nodes do not see."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.conftest import PRELUDE, Cluster
from tests.live_notebook import Notebook

_ALONE = 'mount -t tmpfs none "$0" && cd "$0" && exec "$@"'
"""Mounts on a folder, and runs a command there."""


def test_what_the_nodes_lack_is_brought_there_or_named(
    cluster: Cluster, open_notebook: Callable[..., Notebook], tmp_path: Path
):
    """One kernel for all of it, since each waits for agents of its own."""
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("a file system of one's own is not allowed here")
    notebook = open_notebook(cwd=tmp_path, wrapper=("unshare", "--mount", "sh", "-c", _ALONE, str(tmp_path)))
    notebook.check(PRELUDE)
    other_versions_are_refused(cluster, notebook)
    own_modules_and_files_are_brought(notebook, tmp_path)
    a_package_that_is_missing_is_named(cluster, notebook)


def other_versions_are_refused(cluster: Cluster, notebook: Notebook) -> None:
    notebook.check("""
    import shutil
    place = "newer/cloudpickle-99.0.dist-info"
    os.makedirs(place)
    open(f"{place}/METADATA", "w").write("Metadata-Version: 2.1\\nName: cloudpickle\\nVersion: 99.0\\n")
    sys.path.insert(0, os.path.abspath("newer"))
    """)
    notebook.check(cluster.setting)
    cell = notebook.run("notebook_launcher(int)", timeout=110)
    assert cell.error == "LaunchError", cell
    assert "has cloudpickle" in cell.error_text
    assert "(here 99.0)" in cell.error_text
    assert "Install the same versions on every machine" in cell.error_text
    notebook.check("sys.path.remove(os.path.abspath('newer')); shutil.rmtree('newer')")


def own_modules_and_files_are_brought(notebook: Notebook, folder: Path) -> None:
    notebook.check("""
    os.makedirs("data")
    open("data/numbers.txt", "w").write("1 2 3")

    def read():
        import own_module

        return own_module.VALUE, open("data/numbers.txt").read(), os.getcwd()
    """)
    for value in (1, 2):
        notebook.check(f"open('own_module.py', 'w').write('VALUE = {value}')")
        found = notebook.value("notebook_launcher(read)", timeout=110)
        assert [each[:2] for each in found] == [(value, "1 2 3")] * 4
    places = {each[2] for each in found}
    assert str(folder) not in places
    assert len(places) == 2, "each node has its own"
    assert list(folder.iterdir()) == [], "the nodes see no more than this"


def a_package_that_is_missing_is_named(cluster: Cluster, notebook: Notebook) -> None:
    notebook.check("""
    os.makedirs("lib/site-packages")
    open("lib/site-packages/only_here.py", "w").write("def value(): return 7")
    sys.path.append(os.path.abspath("lib/site-packages"))
    import only_here

    def use():
        return only_here.value()
    """)
    cell = notebook.run("notebook_launcher(use)")
    assert cell.error == "RankError", cell
    assert "No module named 'only_here'" in cell.error_text
    assert cluster.machines[0] in cell.error_text
