"""What ranks have displayed: the content of one output, or contents of several ranks side by side.

Side by side, each part has a heading, by which it folds. It is plain HTML with inline styles, without scripts: where a
viewer removes the styles, as GitHub does, the parts stand below each other. What can't be part of a larger output
without changing it, or being changed by it, is left out of this: widgets, scripts, and HTML whose tags don't match.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from html import escape
from html.parser import HTMLParser
from typing import Any

from notebook_accel.events import Shown

_IMAGES = ("image/png", "image/jpeg", "image/gif")
_TYPES = {"text/plain", "text/html", *_IMAGES}
_LABELED = {"text/html": "<div>{}</div>\n{}", "text/markdown": "{}\n\n{}", "text/latex": "{} {}"}
"""Types beside text in which a label can stand before the content."""
_MOST_OPEN = 8
"""The number of parts that are open at first; the others show their headings."""
_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
"""Elements without an end."""
_FOREIGN = ("svg", "math")
"""Elements in which a tag may close itself."""
_REFUSED = {
    *("script", "textarea", "title", "xmp", "iframe", "noembed", "noframes", "noscript", "plaintext", "template"),
    *("html", "head", "body", "frameset"),
}
"""Elements of which a browser reads the content or the end by rules of their own, and scripts."""
_LARGEST = 2**20
"""Characters of a display that fits."""
_ROW = "display: flex; flex-wrap: wrap; align-items: flex-start; gap: 0.5em 1.5em"
_PART = "max-width: 100%; overflow-x: auto"


@dataclass(frozen=True)
class Content:
    """What an area shows."""

    data: Mapping[str, Any]
    """By MIME type."""
    metadata: Mapping[str, Any]

    @classmethod
    def of(cls, event: Shown) -> Content:
        found = json.loads(joined(event))
        return cls(found["data"], found["metadata"])

    @property
    def digest(self) -> bytes:
        """The same for equal contents."""
        return hashlib.sha256(json.dumps([self.data, self.metadata], sort_keys=True).encode()).digest()

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return 1000 + len(json.dumps([self.data, self.metadata]))

    def text(self, label: str) -> str:
        """It as text, after a label if there is one."""
        text = str(self.data.get("text/plain", ""))
        return f"{label}\n{text}" if label and "\n" in text else f"{label} {text}" if label else text

    def labeled(self, label: str) -> Content | None:
        """It with a label, in one output; `None` if it has no room for one, such as a widget."""
        if fits(self.data):
            data = compose({label: (self.data, self.metadata)})
        elif self.data.keys() <= {"text/plain", *_LABELED}:
            data = {
                type: form.format(escape(label), self.data[type])
                for type, form in _LABELED.items()
                if type in self.data
            }
        else:
            return None
        return Content({**data, "text/plain": self.text(label)}, self.metadata)

    def parts_of(self, ranks: Collection[int]) -> Parts:
        """What these ranks, who have all displayed it, have displayed."""
        return {tuple(sorted(ranks)): self}

    def left_to(self, ranks: Collection[int]) -> Content:
        """What of it these ranks, who are some of those who have displayed it, have displayed."""
        del ranks
        return self


Parts = Mapping[tuple[int, ...], Content]
"""What ranks have displayed differently in one place."""


@dataclass(frozen=True)
class SideBySide(Content):
    """What ranks have displayed differently in one place, side by side."""

    parts: Parts
    label: Callable[[Collection[int]], str | None]

    @classmethod
    def of_parts(cls, parts: Parts, label: Callable[[Collection[int]], str | None]) -> Content:
        """The parts in the order of the ranks, and equal ones once."""
        ranks_of: dict[int, list[int]] = {}
        contents: list[Content] = []
        for ranks, content in sorted(parts.items()):
            if content not in contents:
                contents.append(content)
            ranks_of.setdefault(contents.index(content), []).extend(ranks)
        if len(contents) == 1:
            return contents[0]
        found = {tuple(sorted(ranks_of[index])): content for index, content in enumerate(contents)}
        labeled = {label(ranks) or "": (part.data, part.metadata) for ranks, part in found.items()}
        return cls(compose(labeled), {}, found, label)

    def labeled(self, label: str) -> Content:
        """Itself: each part has a label."""
        return self

    def parts_of(self, ranks: Collection[int]) -> Parts:
        left = {tuple(rank for rank in part if rank in ranks): content for part, content in self.parts.items()}
        left.pop((), None)
        return left

    def left_to(self, ranks: Collection[int]) -> Content:
        return self.of_parts(self.parts_of(ranks), self.label)


NOTHING = Content({"text/plain": ""}, {})
"""What stands in an output that was cleared."""


def joined(event: Shown) -> bytes:
    """What was displayed, as it came."""
    return b"".join(map(bytes, event.bundle))


Bundle = Mapping[str, Any]
"""A display: its data by MIME type."""


def fits(data: Bundle) -> bool:
    """Whether a display can be part of a larger HTML output: a picture, or HTML that can't reach beyond its part."""
    if not data.keys() <= _TYPES or sum(map(len, data.values())) > _LARGEST:
        return False
    return _is_closed(data["text/html"]) if "text/html" in data else any(type in data for type in _IMAGES)


def compose(parts: Mapping[str, tuple[Bundle, Bundle]]) -> dict[str, str]:
    """Makes one display of several.

    Args:
        parts: The data and the metadata of each display by its label, in the order in which they are shown.
    """
    items = []
    for index, (label, (data, metadata)) in enumerate(parts.items()):
        opening = f'<details style="{_PART}"{" open" if index < _MOST_OPEN else ""}>'
        items.append(f"{opening}<summary>{escape(label)}</summary>\n{_content(label, data, metadata)}\n</details>")
    texts = (f"{label}\n{data.get('text/plain', '')}" for label, (data, _) in parts.items())
    return {"text/html": f'<div style="{_ROW}">\n' + "\n".join(items) + "\n</div>", "text/plain": "\n".join(texts)}


def _content(label: str, data: Bundle, metadata: Bundle) -> str:
    if "text/html" in data:
        return str(data["text/html"])
    type = next(type for type in _IMAGES if type in data)
    encoded = "".join(str(data[type]).split())
    sizes = metadata.get(type) or {}
    size = "".join(f' {name}="{escape(str(sizes[name]))}"' for name in ("width", "height") if name in sizes)
    text = escape(f"{label} {data.get('text/plain', '')}")
    return f'<img src="data:{type};base64,{escape(encoded)}" alt="{text}"{size}>'


def _is_closed(html: str) -> bool:
    tags = _Tags()
    tags.feed(html)
    return not (tags.is_broken or tags.open or tags.rawdata)


class _Tags(HTMLParser):
    """Follows which tags are open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.is_broken = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.is_broken |= tag in _REFUSED
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.is_broken |= tag not in _VOID and not any(each in self.open for each in _FOREIGN)

    def handle_endtag(self, tag: str) -> None:
        if self.open and self.open[-1] == tag:
            self.open.pop()
        else:
            self.is_broken = True

    def handle_comment(self, data: str) -> None:
        self.is_broken = True  # browsers and this parser may not agree where it ends

    def handle_decl(self, decl: str) -> None:
        self.is_broken = True

    def unknown_decl(self, data: str) -> None:
        self.is_broken = True

    def handle_pi(self, data: str) -> None:
        self.is_broken = True
