"""What hosted notebooks do differently: Colab loads widgets through a manager of its own, and others draw none."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import IPython
import IPython.display
import pytest

from notebook_accel.launch.job.job import Job
from notebook_accel.notebook.views import widget, widget_support
from notebook_accel.notebook.views.widget import WidgetView

VIEW = "application/vnd.jupyter.widget-view+json"
MANAGER = "https://colab.example/manager.min.js"


@pytest.fixture
def colab(monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules that Colab's kernels have loaded, as far as widgets need them (googlecolab/colabtools)."""
    output: Any = ModuleType("google.colab.output")
    output._widgets = SimpleNamespace(_installed_url=None)
    output.enable_custom_widget_manager = lambda: setattr(output._widgets, "_installed_url", MANAGER)
    for name, module in {"google.colab": ModuleType("google.colab"), "google.colab.output": output}.items():
        monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture
def request_without_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell of a front end that doesn't say which cell it runs, as those of Colab and Kaggle."""
    kernel = SimpleNamespace(get_parent=lambda: {"metadata": {}})
    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(kernel=kernel))


@pytest.mark.usefixtures("colab")
def test_in_colab_the_panel_names_the_manager_that_loads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[dict[str, Any], dict[str, Any]]] = []
    monkeypatch.setattr(IPython.display, "display", lambda bundle, *, metadata, **_: shown.append((bundle, metadata)))
    WidgetView(Job("train", 0, 2))
    [(bundle, metadata)] = shown
    assert {VIEW, "text/html"} <= bundle.keys(), "a browser that draws no widget has the table"
    assert metadata[VIEW]["colab"]["custom_widget_manager"]["url"] == MANAGER


@pytest.mark.usefixtures("request_without_cell", "colab")
def test_colab_is_expected_to_draw_widgets() -> None:
    assert widget_support.Browsers().draw_widgets()


@pytest.mark.usefixtures("request_without_cell")
def test_a_front_end_that_names_no_cell_gets_the_table() -> None:
    assert not widget_support.Browsers().draw_widgets()


def test_the_panel_loads_nothing_from_the_network() -> None:
    files = [*(Path(widget.__file__).parent / "browser").glob("*.js"), *Path(widget.__file__).parent.rglob("*.css")]
    assert len(files) == 2
    for file in files:
        found = re.search(r"""(?:from|import|import\(|url\()\s*["']?(?:https?:)?//""", file.read_text())
        assert found is None, file.name
