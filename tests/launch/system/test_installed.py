"""What is installed is told from what the user has written, wherever an environment keeps it."""

from __future__ import annotations

import json
import os
import site
import sysconfig
from pathlib import Path

import pytest
import torch

from notebook_accel.launch.system import installed

SITE = os.path.join(site.getusersitepackages(), "package.py")
SYSTEM = "/usr/lib/python3/dist-packages/torch/nn.py"
OVERLAID = "/home/me/.cache/uv/archive-v0/abc/lib/python3.11/site-packages/torch/nn.py"


@pytest.mark.parametrize("path", [torch.__file__, SITE, SYSTEM, OVERLAID])
def test_packages_are_known(path: str) -> None:
    assert installed.is_package(path)
    assert installed.is_installed(path)


def test_python_is_installed_and_no_package() -> None:
    assert not installed.is_package(json.__file__)
    assert installed.is_installed(json.__file__)
    assert installed.is_installed(os.path.join(sysconfig.get_path("stdlib"), ""))


@pytest.mark.parametrize("path", ["/home/me/train.py", "/tmp/ipykernel_1/2.py", "/home/me/site-packages.py"])
def test_all_else_is_the_users(path: str) -> None:
    assert not installed.is_installed(path)


def test_a_folder_may_be_reached_by_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    paths = {**sysconfig.get_paths(), "purelib": str(tmp_path / "link")}
    monkeypatch.setattr(sysconfig, "get_paths", lambda: paths)
    installed.package_folders.cache_clear()
    try:
        assert installed.is_package(str(tmp_path / "real" / "module.py"))
        assert installed.is_package(str(tmp_path / "link" / "module.py"))
    finally:
        installed.package_folders.cache_clear()


@pytest.mark.parametrize(
    ("path", "short"),
    [
        (SYSTEM, "torch/nn.py"),
        (OVERLAID + " line 7", "torch/nn.py line 7"),
        (json.__file__, "json/__init__.py"),
        ("In[5] line 12", "In[5] line 12"),
    ],
)
def test_paths_begin_where_they_are_installed(path: str, short: str) -> None:
    assert installed.short(path) == short
