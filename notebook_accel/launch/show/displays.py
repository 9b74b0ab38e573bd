"""The rich outputs of the ranks of one job: figures, tables and the like, labeled with the ranks that displayed them.

What is equal on several ranks is shown once, in one area; figures and tables that differ share one too, side by side.
What all ranks have displayed needs no label; other areas show theirs with their content, in the same output.
A rank that then displays something else in its place, by an update or after `clear_output`, gets an area of its own. An
area is an output of the console with a display ID, by which it is changed. The lines that a rank has written are
never cleared.
"""

from __future__ import annotations

import os
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from notebook_accel.events import Cleared, Shown
from notebook_accel.launch.show import display_content
from notebook_accel.launch.show.display_content import NOTHING, Content, Parts, SideBySide, joined
from notebook_accel.launch.show.screens import Screen
from notebook_accel.rank_spans import spans

_MOST_PLACES = 100
"""The number of last places at which a rank that comes late may join an area of others."""
_MOST_STORED = 2**26
"""The size of the contents that are stored of areas of several ranks, in case that one of them leaves its area."""


@dataclass(eq=False)
class _Area:
    """An output with a display ID, which the ranks share whose displays it shows."""

    id: str
    members: set[int]
    """The ranks that have displayed it."""
    label: str | None = None
    """The ranks, as they are written; `None` if it has no label."""
    has_heading: bool = False
    """Whether its label is an output of its own, because the content has no room for one."""
    content: Content | None = None
    """What it shows; `None` if that is not stored."""
    is_first: bool = True
    """Whether it shows what it has shown first."""


class Displays:
    """The rich outputs of the ranks of one job.

    Args:
        ranks: All of them.
        label: Makes the label of ranks; empty if they need none.
        screen: Shows them.
    """

    def __init__(self, ranks: Sequence[int], label: Callable[[int | str], str], screen: Screen) -> None:
        self._ranks = ranks
        self._label = label
        self._screen = screen
        self._prefix = os.urandom(6).hex()
        self._count = 0
        self._named: defaultdict[int, dict[str, _Area]] = defaultdict(dict)
        """The areas of each rank by its own display ID."""
        self._own: defaultdict[int, list[_Area]] = defaultdict(list)
        """The areas of each rank since it last cleared its output."""
        self._cleared: defaultdict[int, list[_Area]] = defaultdict(list)
        """The areas that a rank has cleared, which its next displays take over."""
        self._clears_at_next: set[int] = set()
        """The ranks whose next display clears their output."""
        self._stored: OrderedDict[_Area, int] = OrderedDict()
        """The sizes of the contents that are stored, by area."""
        self._stored_size = 0
        self._places: OrderedDict[int, dict[bytes, _Area]] = OrderedDict()
        """The areas of the last places, by a digest of what they have shown first."""

    def show(self, by_rank: Mapping[int, Shown | Cleared], place: int) -> None:
        """Shows what ranks have displayed in the same place: in the order of the ranks, and equal ones once.

        A rank that comes late to a place joins those that have shown the same there, and still do.
        """
        groups: dict[object, dict[int, Shown | Cleared]] = {}
        for rank, event in sorted(by_rank.items()):
            groups.setdefault(self._sameness(rank, event), {})[rank] = event
        if self._show_side_by_side(groups.values(), place):
            return
        for group in groups.values():
            shown = {rank: event for rank, event in group.items() if isinstance(event, Shown) and event.bundle}
            if shown:
                self._display(shown, place)
            for rank, event in group.items():
                if isinstance(event, Cleared):
                    self._clear(rank, wait=event.wait)

    def _show_side_by_side(self, groups: Collection[Mapping[int, Shown | Cleared]], place: int) -> bool:
        """Shows what ranks have displayed in one area, with what others have shown in that place.

        Returns:
            Whether it has: what is equal, doesn't fit beside others, or can be updated, is shown otherwise.
        """
        events = {rank: event for group in groups for rank, event in group.items()}
        if not self._screen.updates_displays or not all(map(_is_lasting, events.values())):
            return False
        shown = {rank: event for rank, event in events.items() if isinstance(event, Shown)}
        area = self._area_beside(shown, place)
        if area is None and len(groups) < 2:
            return False
        parts = {tuple(group): Content.of(shown[next(iter(group))]) for group in groups}
        if not all(display_content.fits(part.data) for part in parts.values()):
            return False
        if area is None:
            self._add(shown, SideBySide.of_parts(parts, self._label_of), self._label_of(shown), place)
        else:
            self._extend(area, parts, place)
        return True

    def _area_beside(self, shown: Mapping[int, Shown], place: int) -> _Area | None:
        """The area in that place beside whose content there is room for that of other ranks."""
        if self._clears_at_next & shown.keys() or any(self._cleared[rank] for rank in shown):
            return None
        for area in self._areas_at(place).values():
            is_named = any(area in self._named[rank].values() for rank in area.members)
            if is_named or not area.is_first or not area.label or area.content is None:
                continue
            parts = area.content.parts_of(area.members).values()
            if all(display_content.fits(part.data) for part in parts):
                return area
        return None

    def _extend(self, area: _Area, parts: Parts, place: int) -> None:
        assert area.content is not None
        content = SideBySide.of_parts({**area.content.parts_of(area.members), **parts}, self._label_of)
        for ranks in parts:
            area.members.update(ranks)
            for rank in ranks:
                self._own[rank].append(area)
        areas = self._areas_at(place)
        for digest in [digest for digest, each in areas.items() if each is area]:
            del areas[digest]
        areas[content.digest] = area
        self._draw(area, content, self._label_of(area.members))

    def _sameness(self, rank: int, event: Shown | Cleared) -> object:
        if isinstance(event, Cleared):
            return event.wait
        is_named = event.display_id is not None
        return joined(event), event.update, event.alone, is_named, event.display_id in self._named[rank]

    def _display(self, group: Mapping[int, Shown], place: int) -> None:
        event = next(iter(group.values()))
        content = Content.of(event)
        label = None if event.alone else self._label_of(group)
        if not self._screen.updates_displays:
            self._screen.write("stdout", f"{content.text('' if event.alone else self._label(spans(group)).strip())}\n")
        elif not event.update:
            self._add(group, content, label, place)
        elif event.display_id in self._named[min(group)]:
            self._update(group, content, label)
        else:  # the notebook itself may have displayed it
            assert event.display_id is not None
            self._screen.display(content.data, content.metadata, event.display_id, update=True)

    def _add(self, group: Mapping[int, Shown], content: Content, label: str | None, place: int) -> None:
        clearing = self._clears_at_next & group.keys()
        self._clears_at_next -= clearing
        for rank in clearing:
            self._take_back(rank)
        before = [self._cleared[rank].pop(0) for rank in group if self._cleared[rank]]
        digest = content.digest
        area = self._areas_at(place).get(digest)
        if before or area is None or not area.is_first:
            area = self._places[place][digest] = self._place(set(group), content, label, before)
        else:
            self._join(area, set(group), content)
        for rank, event in group.items():
            self._own[rank].append(area)
            if event.display_id is not None:
                self._named[rank][event.display_id] = area
        for rank in clearing:
            for each in self._cleared.pop(rank, ()):
                self._leave(each, {rank})

    def _areas_at(self, place: int) -> dict[bytes, _Area]:
        """The areas of a place; only the last places are remembered."""
        areas = self._places.setdefault(place, {})
        if len(self._places) > _MOST_PLACES:
            self._places.popitem(last=False)
        return areas

    def _join(self, area: _Area, ranks: set[int], content: Content) -> None:
        area.members |= ranks
        self._draw(area, content, self._label_of(area.members))

    def _update(self, group: Mapping[int, Shown], content: Content, label: str | None) -> None:
        before = {rank: self._named[rank][str(event.display_id)] for rank, event in group.items()}
        area = self._place(set(group), content, label, before.values())
        for rank, each in before.items():
            self._swap(rank, each, area)

    def _clear(self, rank: int, *, wait: bool) -> None:
        if wait:
            self._clears_at_next.add(rank)
            return
        self._take_back(rank)
        for area in self._cleared[rank]:
            self._leave(area, {rank})

    def _take_back(self, rank: int) -> None:
        self._cleared[rank] += self._own.pop(rank, [])

    # Areas

    def _place(self, ranks: set[int], content: Content, label: str | None, before: Iterable[_Area]) -> _Area:
        """Shows the content in an area of these ranks: in one that they leave behind, or in a new one.

        Args:
            ranks: The ranks.
            content: The content.
            label: Their label.
            before: The areas that they leave.
        """
        found: _Area | None = None
        for area in dict.fromkeys(before):
            staying = area.members - ranks
            if found is None and not staying:
                found = area
            elif found is None and area.content is not None and min(area.members) in ranks:
                found = area
                self._move_out(area, staying)
            else:
                self._leave(area, ranks)
        if found is None:
            return self._new(ranks, content, label)
        found.members = ranks
        self._set(found, content, label)
        return found

    def _move_out(self, area: _Area, ranks: set[int]) -> None:
        """Shows what ranks have in an area that others take over in an area of their own, below."""
        assert area.content is not None
        new = self._new(ranks, area.content.left_to(ranks), self._label_of(ranks))
        for rank in ranks:
            self._swap(rank, area, new)

    def _leave(self, area: _Area, ranks: set[int]) -> None:
        area.members -= ranks
        if not area.members:
            self._set(area, NOTHING, None)
        elif area.content is not None:
            left = area.content.left_to(area.members)
            area.is_first &= left is area.content
            self._draw(area, left, self._label_of(area.members))

    def _swap(self, rank: int, old: _Area, new: _Area) -> None:
        for areas in (self._own[rank], self._cleared[rank]):
            areas[:] = [new if area is old else area for area in areas]
        for name, area in self._named[rank].items():
            if area is old:
                self._named[rank][name] = new

    def _new(self, ranks: set[int], content: Content, label: str | None) -> _Area:
        self._count += 1
        area = _Area(f"{self._prefix}-{self._count}", ranks)
        self._draw(area, content, label, is_new=True)
        return area

    def _set(self, area: _Area, content: Content, label: str | None) -> None:
        area.is_first = False
        self._draw(area, content, label)

    def _draw(self, area: _Area, content: Content, label: str | None, *, is_new: bool = False) -> None:
        labeled = content if label is None else content.labeled(label)
        heading = label if labeled is None else None
        if area.has_heading or (is_new and heading):
            area.has_heading = True
            self._screen.display({"text/plain": heading or ""}, {}, f"{area.id}-label", update=not is_new)
        shown = labeled or content
        self._screen.display(shown.data, shown.metadata, area.id, update=not is_new)
        area.label = label
        self._store(area, content)

    def _store(self, area: _Area, content: Content) -> None:
        """Stores the content of an area that one of its ranks may leave, or beside which others may be shown."""
        self._stored_size -= self._stored.pop(area, 0)
        is_needed = len(area.members) > 1 or (area.label and display_content.fits(content.data))
        area.content = content if is_needed else None
        if area.content is not None:
            self._stored[area] = content.size
            self._stored_size += content.size
            while self._stored_size > _MOST_STORED:
                oldest, size = self._stored.popitem(last=False)
                oldest.content = None
                self._stored_size -= size

    def _label_of(self, ranks: Collection[int]) -> str | None:
        """The label of these ranks; `None` if they are all, or there is only one."""
        return None if len(ranks) == len(self._ranks) else self._label(spans(ranks)).strip() or None


def _is_lasting(event: Shown | Cleared) -> bool:
    """Whether this is a new display of one of several ranks that it does not update."""
    return isinstance(event, Shown) and bool(event.bundle) and not (event.update or event.alone or event.display_id)
