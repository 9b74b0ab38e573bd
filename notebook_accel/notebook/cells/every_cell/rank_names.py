"""Completes and explains names as the ranks know them, while cells run on the ranks.

A free rank gets the request, and has a moment to answer; otherwise, IPython completes and explains the kernel's names.
"""

from __future__ import annotations

import builtins
import keyword
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from notebook_accel.notebook.cells.on_rank import names
from notebook_accel.notebook.cells.persistent import PersistentRanks
from notebook_accel.notebook.ipython.here_cells import runs_here

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_COMPLETE_WITHIN = 0.5
"""Seconds that a rank may take to complete a name. A busy rank gets no request."""
_INSPECT_WITHIN = 2.0
"""Seconds that a rank may take to explain a name."""
_PRIORITY = 500
"""Above those of IPython's own matchers, below that of the magics of this package."""
_IDENTIFIER = "notebook_accel_ranks"
_INSPECT = "object_inspect_mime"


class RankNames:
    """Asks the ranks for completions and help.

    Args:
        shell: The notebook's shell.
        ranks: Returns the ranks, and the numbers of those that may get requests; `None` if there are none.
    """

    def __init__(self, shell: InteractiveShell, ranks: Callable[[], tuple[PersistentRanks, list[int]] | None]) -> None:
        self._shell: Any = shell
        self._ranks = ranks
        self._matcher: Any = None

    def prepare(self, ranks: PersistentRanks, members: Sequence[int]) -> None:
        """Makes the ranks import what completion needs, which takes longer than a completion may."""
        ranks.call_on_ranks(names.complete, "x", 1, members=members)

    def install(self) -> None:
        """Asks the ranks from now on."""
        self._matcher = self._make_matcher()
        self._shell.Completer.custom_matchers.append(self._matcher)
        setattr(self._shell, _INSPECT, self._inspect)  # IPython has no hook for it

    def uninstall(self) -> None:
        """Asks them no longer."""
        self._shell.Completer.custom_matchers.remove(self._matcher)
        delattr(self._shell, _INSPECT)

    def _call(self, seconds: float, function: Callable[..., Any], *args: Any) -> Any:
        found = self._ranks()
        if found is None or threading.current_thread() is not threading.main_thread():
            return None
        ranks, members = found
        return ranks.call_free_rank(function, *args, members=members, seconds=seconds)

    def _complete(self, code: str, at: int) -> names.Completions:
        answer = None if runs_here(code) else self._call(_COMPLETE_WITHIN, names.complete, code, at)
        if answer is None or answer.fragment.startswith("%"):  # the kernel has more magics
            return names.Completions("", [])
        found: names.Completions = answer
        return found

    def _make_matcher(self) -> Any:
        try:
            from IPython.core.completer import SimpleCompletion, context_matcher
        except ImportError:  # before IPython 8.6
            return self._match_word

        def match(context: Any) -> Any:
            at = _offset(context.full_text, context.cursor_line, context.cursor_position)
            fragment, found = self._complete(context.full_text, at)
            is_name = fragment.isidentifier() and not context.full_text[: at - len(fragment)].endswith(".")
            if is_name:  # the kernel's names are offered too, since they are sent when a cell reads them
                found = [(text, kind) for text, kind in found if not self._is_known(text)]
            return {
                "completions": [SimpleCompletion(text, type=kind) for text, kind in found],
                "matched_fragment": fragment,
                "suppress": bool(found) and not is_name,
            }

        return context_matcher(priority=_PRIORITY, identifier=_IDENTIFIER)(match)

    def _is_known(self, name: str) -> bool:
        """Whether the kernel completes this name itself."""
        return name in self._shell.user_ns or hasattr(builtins, name) or keyword.iskeyword(name)

    def _match_word(self, word: str) -> list[str]:
        """The same for older versions: takes the word before the cursor, and returns replacements for it."""
        code = self._shell.Completer.text_until_cursor
        fragment, found = self._complete(code, len(code))
        kept = word[: len(word) - len(fragment)]
        return [kept + text for text, _ in found]

    def _inspect(self, oname: str, detail_level: int = 0, **options: Any) -> Any:
        found = self._call(_INSPECT_WITHIN, names.inspect, oname, detail_level, options)
        return found or getattr(type(self._shell), _INSPECT)(self._shell, oname, detail_level, **options)


def _offset(text: str, line: int, column: int) -> int:
    """The index of a position in a text."""
    return sum(len(each) + 1 for each in text.split("\n")[:line]) + column
