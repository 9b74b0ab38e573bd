"""The rich outputs of several ranks, in a console that changes an output by its display ID."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from notebook_accel.events import Cleared, Shown
from notebook_accel.launch.show.displays import Displays


class Page:
    """What stands below a cell: the outputs in their order, each as it was last updated."""

    updates_displays = True

    def __init__(self) -> None:
        self._outputs: dict[str, str] = {}
        self.unknown: list[tuple[str, str]] = []
        """Updates of what this page has not displayed."""
        self.lines: list[str] = []

    @property
    def outputs(self) -> list[str]:
        """Those that are not empty."""
        return [text for text in self._outputs.values() if text]

    def write(self, stream: str, text: str) -> None:
        assert stream == "stdout"
        self.lines.append(text)

    def display(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], display_id: str, *, update: bool = False
    ) -> None:
        del metadata
        if update and display_id not in self._outputs:
            self.unknown.append((display_id, data["text/plain"]))
            return
        assert update is (display_id in self._outputs)
        self._outputs[display_id] = data["text/plain"]


class Terminal(Page):
    """A console that only prints."""

    updates_displays = False


def shown(text: str, display_id: str | None = None, *, update: bool = False, alone: bool = False) -> Shown:
    bundle = json.dumps({"data": {"text/plain": text}, "metadata": {}}).encode()
    return Shown(display_id, update, alone, bundle=[bundle[:5], bundle[5:]])


def figure(text: str, display_id: str | None = None) -> Shown:
    """What can be shown beside what others display."""
    data = {"image/png": text, "text/plain": text}
    return Shown(display_id, bundle=[json.dumps({"data": data, "metadata": {}}).encode()])


class Ranks:
    """Ranks that display at once, on a page."""

    def __init__(self, page: Page | None = None, *, alone: bool = False, count: int = 4) -> None:
        self.page = page or Page()
        self._displays = Displays(range(count), lambda ranks: "" if alone else f"[{ranks}] ", self.page)
        self._place = 0

    def show(self, **texts: str) -> None:
        """`r0="a"`: rank 0 displays `a`, with a display ID of its own."""
        self.apply(**{name: shown(text, f"id-{name}") for name, text in texts.items()})

    def show_late(self, place: int, **texts: str) -> None:
        """The same in an earlier place, counted from 1."""
        self.apply_late(place, **{name: shown(text, f"id-{name}") for name, text in texts.items()})

    def apply_late(self, place: int, **events: Shown | Cleared) -> None:
        self._place, last = place - 1, self._place
        self.apply(**events)
        self._place = last

    def update(self, **texts: str) -> None:
        self.apply(**{name: shown(text, f"id-{name}", update=True) for name, text in texts.items()})

    def clear(self, *ranks: int, wait: bool = True) -> None:
        self.apply(**{f"r{rank}": Cleared(wait) for rank in ranks})

    def apply(self, **events: Shown | Cleared) -> None:
        self._place += 1
        self._displays.show({int(name[1:]): event for name, event in events.items()}, self._place)


@pytest.fixture
def ranks() -> Ranks:
    return Ranks()


def test_equal_displays_are_shown_once_under_the_label_of_all(ranks: Ranks) -> None:
    ranks.show(r2="b", r1="a", r3="a", r0="b")
    assert ranks.page.outputs == ["[0,2] b", "[1,3] a"]


def test_a_job_of_one_rank_needs_no_label() -> None:
    ranks = Ranks(alone=True)
    ranks.show(r0="a")
    ranks.update(r0="b")
    assert ranks.page.outputs == ["b"]


def test_what_all_ranks_have_displayed_needs_no_label_until_one_of_them_leaves_it() -> None:
    ranks = Ranks(count=3)
    ranks.show(r0="a", r1="a")
    assert ranks.page.outputs == ["[0-1] a"]
    ranks.show_late(1, r2="a")
    assert ranks.page.outputs == ["a"]
    ranks.update(r1="b")
    assert ranks.page.outputs == ["[0,2] a", "[1] b"]
    ranks.update(r0="b", r1="b", r2="b")
    assert ranks.page.outputs == ["b"]


def test_a_label_stands_above_what_has_no_room_for_one() -> None:
    widget = json.dumps({"data": {"application/vnd.jupyter.widget-view+json": {}, "text/plain": "widget"}})
    shown = Shown("id", bundle=[widget[:-1].encode() + b', "metadata": {}}'])
    ranks = Ranks(count=2)
    ranks.apply(r1=shown)
    assert ranks.page.outputs == ["[1]", "widget"]
    ranks.apply_late(1, r0=shown)
    assert ranks.page.outputs == ["widget"]


def test_the_only_rank_that_is_shown_needs_no_label(ranks: Ranks) -> None:
    ranks.apply(r2=shown("a", alone=True))
    assert ranks.page.outputs == ["a"]


def test_a_rank_that_comes_late_joins_those_that_have_displayed_the_same(ranks: Ranks) -> None:
    ranks.show(r1="a")
    ranks.show_late(1, r0="a", r2="b")
    assert ranks.page.outputs == ["[0-1] a", "[2] b"]
    ranks.update(r0="c")
    assert ranks.page.outputs == ["[0] c", "[2] b", "[1] a"]


def test_a_rank_that_comes_late_does_not_join_what_was_changed_meanwhile(ranks: Ranks) -> None:
    ranks.show(r1="a")
    ranks.update(r1="b")
    ranks.show_late(1, r0="a")
    assert ranks.page.outputs == ["[1] b", "[0] a"]


def test_an_update_of_all_changes_the_output_in_its_place(ranks: Ranks) -> None:
    ranks.show(r0="a", r1="a")
    ranks.apply(r0=shown("below"), r1=shown("below"))
    ranks.update(r0="c", r1="c")
    assert ranks.page.outputs == ["[0-1] c", "[0-1] below"]


def test_ranks_whose_updates_differ_part_in_the_order_of_the_ranks(ranks: Ranks) -> None:
    ranks.show(r0="empty", r1="empty", r2="empty")
    ranks.update(r0="a", r1="b", r2="c")
    assert ranks.page.outputs == ["[0] a", "[1] b", "[2] c"]
    ranks.update(r2="C", r0="A")
    assert ranks.page.outputs == ["[0] A", "[1] b", "[2] C"]


def test_a_rank_that_parts_alone_leaves_the_others_theirs(ranks: Ranks) -> None:
    ranks.show(r0="empty", r1="empty", r2="empty")
    ranks.update(r1="b")
    assert ranks.page.outputs == ["[0,2] empty", "[1] b"]
    ranks.update(r0="a")
    assert ranks.page.outputs == ["[0] a", "[1] b", "[2] empty"]


def test_ranks_that_have_parted_and_agree_again_share_an_output(ranks: Ranks) -> None:
    ranks.show(r0="empty", r1="empty")
    ranks.update(r0="a", r1="b")
    ranks.update(r0="done", r1="done")
    assert ranks.page.outputs == ["[0-1] done"]
    ranks.update(r1="not quite")
    assert ranks.page.outputs == ["[0] done", "[1] not quite"]


def test_an_update_of_what_the_notebook_has_displayed_is_passed_on(ranks: Ranks) -> None:
    ranks.update(r1="a")
    assert ranks.page.unknown == [("id-r1", "a")]


def test_a_display_after_a_clear_takes_the_place_of_the_one_before(ranks: Ranks) -> None:
    for step in range(3):
        ranks.clear(0, 1)
        ranks.show(r0=f"step {step}", r1=f"step {step}")
    assert ranks.page.outputs == ["[0-1] step 2"]


def test_a_clear_that_waits_keeps_what_is_shown_until_the_next_display(ranks: Ranks) -> None:
    ranks.show(r0="a")
    ranks.show(r0="b")
    ranks.clear(0)
    assert ranks.page.outputs == ["[0] a", "[0] b"]
    ranks.show(r0="c")
    assert ranks.page.outputs == ["[0] c"]


def test_a_clear_that_does_not_wait_clears_at_once(ranks: Ranks) -> None:
    ranks.show(r0="a", r1="b")
    ranks.clear(0, wait=False)
    assert ranks.page.outputs == ["[1] b"]
    ranks.show(r0="c")
    assert ranks.page.outputs == ["[0] c", "[1] b"]


def test_a_rank_clears_only_what_is_its_own(ranks: Ranks) -> None:
    ranks.show(r0="a", r1="a", r2="c")
    ranks.clear(1, wait=False)
    assert ranks.page.outputs == ["[0] a", "[2] c"]


def test_ranks_that_clear_and_then_differ_part_in_order(ranks: Ranks) -> None:
    ranks.show(r0="a", r1="a")
    ranks.clear(0, 1)
    ranks.show(r0="b", r1="c")
    assert ranks.page.outputs == ["[0] b", "[1] c"]
    ranks.clear(0, 1)
    ranks.show(r0="d", r1="e")
    assert ranks.page.outputs == ["[0] d", "[1] e"]


def test_a_terminal_gets_the_text_of_each_display_as_lines() -> None:
    ranks = Ranks(Terminal())
    ranks.show(r0="a", r1="a")
    ranks.update(r1="b\nc")
    ranks.clear(0)
    assert ranks.page.lines == ["[0-1] a\n", "[1]\nb\nc\n"]


def test_figures_that_differ_are_shown_side_by_side_and_equal_ones_once(ranks: Ranks) -> None:
    ranks.apply(r2=figure("b"), r0=figure("a"), r1=figure("b"))
    assert ranks.page.outputs == ["[0]\na\n[1-2]\nb"]
    ranks.apply(r0=figure("c"), r1=figure("c"))
    assert ranks.page.outputs[1:] == ["[0-1] c"]


def test_a_figure_that_comes_late_is_shown_beside_the_others_in_the_order_of_the_ranks(ranks: Ranks) -> None:
    ranks.apply(r1=figure("b"))
    ranks.apply(r1=figure("below"))
    ranks.apply_late(1, r0=figure("a"))
    ranks.apply_late(1, r2=figure("b"))
    assert ranks.page.outputs == ["[0]\na\n[1-2]\nb", "[1] below"]


def test_figures_side_by_side_are_drawn_anew_in_their_place(ranks: Ranks) -> None:
    for step in "123":
        ranks.clear(0, 1)
        ranks.apply(r0=figure(f"a{step}"), r1=figure(f"b{step}"))
    assert ranks.page.outputs == ["[0]\na3\n[1]\nb3"]
    ranks.clear(0, 1)
    ranks.apply(r0=figure("c"), r1=figure("c"))
    assert ranks.page.outputs == ["[0-1] c"]


def test_a_rank_that_clears_its_figure_leaves_the_others_theirs(ranks: Ranks) -> None:
    ranks.apply(r0=figure("a"), r1=figure("b"), r2=figure("c"))
    ranks.clear(1, wait=False)
    assert ranks.page.outputs == ["[0]\na\n[2]\nc"]
    ranks.clear(0)
    ranks.apply(r0=figure("d"))
    assert ranks.page.outputs == ["[0] d", "[2] c"]


def test_what_can_be_updated_has_an_output_of_its_own(ranks: Ranks) -> None:
    ranks.apply(r0=figure("a", "id-r0"), r1=figure("b", "id-r1"))
    assert ranks.page.outputs == ["[0] a", "[1] b"]
    ranks.apply_late(1, r2=figure("c"))
    assert ranks.page.outputs[2:] == ["[2] c"]


def test_a_terminal_shows_one_figure_after_the_other() -> None:
    page = Terminal()
    Ranks(page).apply(r0=figure("a"), r1=figure("b"))
    assert page.lines == ["[0] a\n", "[1] b\n"]
