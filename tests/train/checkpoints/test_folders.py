"""Folders that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.checkpoints import folders
from notebook_accel.train.checkpoints.folders import StagedFolder


def fill(folder: Path, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_text(text)


def save(target: Path, text: str) -> None:
    staged = StagedFolder(target)
    staged.begin()
    fill(staged.path, text)
    staged.commit()


def content(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_folder_is_not_seen_before_it_is_whole(tmp_path: Path) -> None:
    staged = StagedFolder(tmp_path / "deep" / "checkpoint")
    staged.begin()
    fill(staged.path, "new")
    assert not staged.target.exists()
    staged.commit()
    assert content(tmp_path) == {"deep/checkpoint/model.safetensors": "new"}


def test_all_of_a_folder_is_on_the_disk_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Any] = []
    fsync, rename = os.fsync, os.rename

    def noting_fsync(fd: int) -> None:
        done.append(os.fstat(fd).st_ino)
        fsync(fd)

    def noting_rename(source: Path, target: Path) -> None:
        done.append("renamed")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(os, "rename", noting_rename)
    staged = StagedFolder(tmp_path / "runs" / "checkpoint")
    staged.begin()
    fill(staged.path, "new")
    fill(staged.path / "optimizer_0", "new")
    staged.commit()
    renamed = done.index("renamed")
    assert {path.stat().st_ino for path in (staged.target, *staged.target.rglob("*"))} <= set(done[:renamed])
    assert staged.target.parent.stat().st_ino in done[renamed:], "the name itself is not on the disk"


def test_a_folder_that_is_there_is_replaced_but_for_files_of_others(tmp_path: Path) -> None:
    target = tmp_path / "run"
    save(target, "old")
    (target / "random_states_3.pkl").write_text("of a run on four ranks")
    (target / "config.json").write_text("{}")
    (target / "logs").mkdir()
    events = (target / "logs" / "events").open("w")
    os.symlink("config.json", target / "latest.json")
    save(target, "new")
    events.write("still written to")
    events.close()
    assert content(target) == {
        "config.json": "{}",
        "latest.json": "{}",
        "logs/events": "still written to",
        "model.safetensors": "new",
    }
    assert (target / "latest.json").is_symlink()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


CRASHES: dict[str, tuple[Callable[[Path], None], str]] = {
    "before anything was there": (lambda target: fill(target.with_name(".run.unfinished"), "half"), ""),
    "while writing": (lambda target: (fill(target, "old"), fill(target.with_name(".run.unfinished"), "half")), "old"),
    "between the renames": (
        lambda target: (
            fill(target.with_name(".run.previous"), "old"),
            fill(target.with_name(".run.unfinished"), "new"),
        ),
        "old",
    ),
    "while removing": (lambda target: (fill(target, "new"), fill(target.with_name(".run.previous"), "ol")), "new"),
}


@pytest.mark.parametrize("name", CRASHES)
def test_after_a_crash_the_last_whole_one_is_there_and_the_next_save_tidies_up(name: str, tmp_path: Path) -> None:
    crash, kept = CRASHES[name]
    target = tmp_path / "run"
    crash(target)
    folders.recover(target)
    assert (content(target) if target.exists() else {}) == ({"model.safetensors": kept} if kept else {})
    save(target, "next")
    assert content(tmp_path) == {"run/model.safetensors": "next"}


def test_a_folder_reached_through_a_link_is_replaced_where_it_is(tmp_path: Path) -> None:
    fill(tmp_path / "disk" / "run", "old")
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "run")
    save(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert content(tmp_path / "disk") == {"run/model.safetensors": "new"}


def test_places_that_cannot_be_replaced_in_one_step_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    for place in (".", tmp_path):
        with pytest.raises(ConfigurationError, match="is in use as the current directory"):
            StagedFolder(place)
    with pytest.raises(ConfigurationError, match="is a mount point"):
        StagedFolder("/proc")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="is a file"):
        StagedFolder(tmp_path / "file")


def test_the_oldest_go_by_number_and_the_newest_stays(tmp_path: Path) -> None:
    for number in (2, 10, 9, 1):
        fill(tmp_path / f"checkpoint_{number}", "")
    fill(tmp_path / "checkpoint_best", "")
    folders.remove_oldest(tmp_path, 2, tmp_path / "checkpoint_1")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint_1", "checkpoint_10", "checkpoint_best"]
    assert [number for number, _ in folders.numbered(tmp_path)] == [1, 10]
    assert folders.numbered(tmp_path / "nowhere") == []


def test_only_automatic_checkpoints_are_removed_for_automatic_ones(tmp_path: Path) -> None:
    for number in range(5):
        fill(tmp_path / f"checkpoint_{number}", "")
        if number != 1:
            (tmp_path / f"checkpoint_{number}" / "checkpoint.json").touch()
    folders.remove_oldest(tmp_path, 2, tmp_path / "checkpoint_4", only_automatic=True)
    assert [number for number, _ in folders.numbered(tmp_path)] == [1, 3, 4]
