"""The panels of ended jobs stay for pages that are opened later, but not all of them."""

from __future__ import annotations

from notebook_accel.notebook.views.reload.ended_panels import EndedPanels


class Panel:
    is_closed = False

    def close(self) -> None:
        self.is_closed = True


def test_the_last_panels_stay_open_until_a_page_has_stored_their_html() -> None:
    ended = EndedPanels(3)
    panels = [Panel() for _ in range(6)]
    for panel in panels[:4]:
        ended.keep(panel)
    assert [panel.is_closed for panel in panels] == [True, False, False, False, False, False]
    ended.release(panels[2])
    ended.release(panels[0])  # another page has stored it, too
    ended.keep(panels[4])
    assert [panel.is_closed for panel in panels] == [True, False, True, False, False, False]
    ended.keep(panels[5])
    assert [panel.is_closed for panel in panels] == [True, True, True, False, False, False]
