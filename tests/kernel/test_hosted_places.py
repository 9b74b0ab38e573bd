"""Kernels as Kaggle and Colab start them: their variables, what they have imported, and, for root, no network.

Sources: `Dockerfile.tmpl` and `patches/sitecustomize.py` of Kaggle/docker-python, which starts from Colab's image, and
googlecolab/colabtools.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documents import blocks
from tests.kernel.conftest import end
from tests.live_notebook import Cell, Notebook

pytestmark = pytest.mark.versions

SUMMARY = "<b>hello()</b>&ensp;"
"""The first line of the HTML. A table is below it unless the ranks end before their memory is measured."""
VIEW = "application/vnd.jupyter.widget-view+json"
PAGE = Path(__file__).parents[2] / "docs" / "hosted-notebooks.md"
NO_NETWORK = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
INLINE = "c = get_config()\nc.IPKernelApp.matplotlib = 'inline'\n"
# Kaggle's imports torch into every process of the image, before anything else.
KAGGLE_STARTS_WITH = "import torch\n"
COLAB_STARTS_WITH = """
import sys
from types import ModuleType, SimpleNamespace
output = ModuleType("google.colab.output")
output._widgets = SimpleNamespace(_installed_url=None)
output.enable_custom_widget_manager = lambda: setattr(output._widgets, "_installed_url", "https://colab.example/m.js")
sys.modules["google.colab"], sys.modules["google.colab.output"] = ModuleType("google.colab"), output
"""
COLAB = {
    "COLAB_RELEASE_TAG": "release-colab-external_20260901",
    "COLAB_GPU": "",
    "COLAB_TPU_1VM": "",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
}
KAGGLE = {
    **COLAB,
    "KAGGLE_KERNEL_RUN_TYPE": "Interactive",
    "KAGGLE_URL_BASE": "https://www.kaggle.com",
    "KAGGLE_DATA_PROXY_TOKEN": "a-secret-of-the-user",
    "KAGGLE_DATA_PROXY_URL": "https://dp.kaggle.net",
    "MKL_THREADING_LAYER": "GNU",
}


def started(tmp_path: Path, variables: dict[str, str], starts_with: str) -> Iterator[Notebook]:
    """A kernel with the variables, and with what each process of the image starts with."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(starts_with)
    profile = tmp_path / "ipython" / "profile_default"
    profile.mkdir(parents=True)
    (profile / "ipython_kernel_config.py").write_text(INLINE)
    # An empty entry, as in the image, is the notebook's folder.
    path = os.pathsep.join(["", str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
    variables = {**variables, "PYTHONPATH": path, "IPYTHONDIR": str(tmp_path / "ipython")}
    isolates = subprocess.run([*NO_NETWORK, "true"], capture_output=True, check=False).returncode == 0
    notebook = Notebook(env=variables, wrapper=NO_NETWORK if isolates else ())
    yield notebook
    end(notebook)


@pytest.fixture(scope="module")
def kaggle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    yield from started(tmp_path_factory.mktemp("kaggle"), KAGGLE, KAGGLE_STARTS_WITH)


@pytest.fixture(scope="module")
def colab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    yield from started(tmp_path_factory.mktemp("colab"), COLAB, COLAB_STARTS_WITH)


def first_cell(notebook: Notebook) -> Cell:
    """Runs the page's first launch, on two ranks."""
    [hello] = [each.code for each in blocks.read(PAGE) if "def hello" in each.code]
    notebook.check("import os; os.environ['NOTEBOOK_ACCEL_NUM_PROCESSES'] = '2'")
    return notebook.check(hello)


def test_the_first_cell_runs_on_kaggle_and_leaves_html(kaggle: Notebook) -> None:
    cell = first_cell(kaggle)
    assert sorted(cell.lines) == [f"[{rank}] rank {rank} of 2 on cpu" for rank in range(2)]
    assert cell.widgets == []
    assert any(SUMMARY in html for html in cell.in_order())
    assert KAGGLE["KAGGLE_DATA_PROXY_TOKEN"] not in repr([cell.bundles, cell.text])


def test_the_panel_can_be_tried_on_kaggle(kaggle: Notebook) -> None:
    kaggle.check("from notebook_accel import set_view; set_view('widget')")
    cell = first_cell(kaggle)
    kaggle.check("set_view(None)")
    assert len(cell.widgets) == 1
    assert sorted(cell.lines) == [f"[{rank}] rank {rank} of 2 on cpu" for rank in range(2)]


def test_ranks_on_kaggle_train_after_the_notebook_has_used_torch(kaggle: Notebook) -> None:
    found = kaggle.value("""
    import os
    import torch
    from notebook_accel import Accelerator, notebook_launcher
    (torch.rand(500, 500) @ torch.rand(500, 500)).sum()  # torch has its threads
    def total():
        accelerator = Accelerator()
        return accelerator.reduce(torch.ones(1)).item(), os.environ["KAGGLE_KERNEL_RUN_TYPE"]
    notebook_launcher(total)
    """)
    assert found == [(2.0, "Interactive")] * 2


def test_the_first_cell_has_the_panel_on_colab_though_its_output_frame_never_answers(colab: Notebook) -> None:
    cell = first_cell(colab)
    assert sorted(cell.lines) == [f"[{rank}] rank {rank} of 2 on cpu" for rank in range(2)]
    assert len(cell.widgets) == 1
    assert any(SUMMARY in html for html in cell.in_order())
