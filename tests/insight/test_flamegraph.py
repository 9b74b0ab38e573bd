"""What a flame graph says and draws."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path

import pytest

from notebook_accel.errors import ConfigurationError
from notebook_accel.events import Frame, Sampled
from notebook_accel.insight import flamegraph
from notebook_accel.insight.flamegraph import Flamegraph

TORCH = f"{sysconfig.get_paths()['purelib']}/torch"
TRAIN = Frame("/home/me/train.py", 7, "train<>")
FORWARD = Frame(f"{TORCH}/nn/parallel/distributed.py", 40, "forward")
LINEAR = Frame(f"{TORCH}/nn/modules/linear.py", 9, "forward")
REDUCE = Frame(f"{TORCH}/distributed/distributed_c10d.py", 3, "all_reduce")
RARE = Frame("/home/me/train.py", 8, "rare")
BOX = re.compile(r'<div title="([^"]*)" style="background-color:(#\w+)')
RED = "#b3261e"


def rank(forward: int = 600_000, reduce: int = 400_000) -> Sampled:
    """A second: in a layer below DDP's `forward`, which itself takes a little, and in a collective operation."""
    frames, callers = [TRAIN, FORWARD, LINEAR, REDUCE, RARE], [-1, 0, 1, 0, 0]
    return Sampled(1, frames, callers, [0, 1000, forward - 1000, reduce, 100], 100, 1.0, 0.0, 0.0)


def test_the_text_has_the_calls_that_took_most_below_their_callers() -> None:
    head, *lines = repr(Flamegraph("train()", {0: rank(), 1: rank()}, [])).splitlines()
    assert head == "train() on ranks 0-1: 1.0 s, 200 samples"
    assert lines == [
        " 100%  train<>, /home/me/train.py line 7",
        "  60%    forward, torch/nn/parallel/distributed.py line 40",
        "  60%      forward, torch/nn/modules/linear.py line 9",
        "  40%    all_reduce, torch/distributed/distributed_c10d.py line 3 (collective operation)",
    ]


def test_a_call_is_as_wide_as_its_share_of_its_caller_and_only_collectives_are_red() -> None:
    drawn = Flamegraph("train()", {0: rank()}, [])._repr_html_()
    assert "train&lt;&gt;" in drawn
    assert "train<>" not in drawn
    assert "width:59.994%" in drawn
    titles = dict(BOX.findall(drawn))
    assert [title.split(",")[0] for title, color in titles.items() if color == RED] == ["collective: all_reduce"]
    drawn = Flamegraph("train()", {0: rank(100_000, 900_000)}, [])._repr_html_()
    titles_in_red = [title.split(",")[0] for title, color in BOX.findall(drawn) if color == RED]
    assert titles_in_red == ["collective: all_reduce"], "a caller with other calls is not one"
    assert not any("rare" in title for title in titles), "too narrow to be seen"


def test_each_rank_has_its_share_of_collectives() -> None:
    drawn = Flamegraph("train()", {0: rank(), 3: rank(100_000, 900_000)}, [])._repr_html_()
    for summary in ("all ranks together: 2.0 s, 65%", "rank 0: 1.0 s, 40%", "rank 3: 1.0 s, 90%"):
        assert f"<summary>{summary} in collective operations</summary>" in drawn


def test_of_many_ranks_some_have_their_own_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flamegraph, "MOST_RANKS", 2)
    drawn = Flamegraph("train()", {number: rank() for number in range(5)}, [])._repr_html_()
    assert drawn.count("<details") == 3
    assert "3 more ranks are not drawn" in drawn


def test_ranks_that_did_not_report_are_named() -> None:
    assert "ranks 1-2 did not report" in repr(Flamegraph("train()", {0: rank()}, [1, 2]))


def test_the_end_of_the_name_chooses_the_format(tmp_path: Path) -> None:
    found = Flamegraph("train()", {0: rank()}, [])
    assert '"type": "sampled"' in found.save(tmp_path / "a.speedscope.json").read_text()
    assert found.save(tmp_path / "a.html").read_text().startswith("<!DOCTYPE html>")
    with pytest.raises(ConfigurationError, match=r"end the name with \.json for speedscope"):
        found.save(tmp_path / "a.svg")
