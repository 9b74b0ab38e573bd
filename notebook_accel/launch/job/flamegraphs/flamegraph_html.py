"""Draws trees of calls as flame graphs: HTML that stays in the notebook.

All styles are inline, so the picture also shows in a saved notebook that is not trusted, and in a page exported from
it. A script of a few lines enlarges a call when it is clicked; where scripts do not run, everything else is the same.
The outermost call is at the top. Text has a contrast of at least 4.5:1 with its background, in light and dark themes.
"""

from __future__ import annotations

import html
from collections.abc import Mapping

from notebook_accel.launch.job.flamegraphs import call_tree
from notebook_accel.launch.job.flamegraphs.call_tree import Call
from notebook_accel.launch.job.text import shortened
from notebook_accel.launch.wire import stack_frames

_LEAST = 0.003
"""The share of the whole below which a call is not drawn."""
_MOST_DEPTH = 80
MOST_RANKS = 8
"""The most ranks that have their own picture."""
_MOST_CHARACTERS = 200
_COLLECTIVE = ("collective operation", "#b3261e", "#ffffff")
_USERS = ("your code", "#f2b84b", "#1a1a1a")
_TORCH = ("torch", "#9cc3e6", "#1a1a1a")
_OTHER = ("other libraries", "#cccccc", "#1a1a1a")
_SCRIPT = """
(root => {
  if (!root) return;
  const boxes = [...root.querySelectorAll("[title]")];
  let shown = null;
  const zoom = box => {
    boxes.forEach(each => { each.parentNode.style.width = each.dataset.width; each.parentNode.style.display = ""; });
    shown = box === shown ? null : box;
    for (let call = shown && box.parentNode; call && root.contains(call) && call.firstElementChild.title;
         call = call.parentNode.parentNode) {
      for (const other of call.parentNode.children) other.style.display = other === call ? "" : "none";
      call.style.width = "100%";
    }
  };
  boxes.forEach(box => {
    box.dataset.width = box.parentNode.style.width;
    box.style.cursor = "pointer";
    box.tabIndex = 0;
    box.setAttribute("role", "button");
    box.onclick = () => zoom(box);
    box.onkeydown = event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); zoom(box); } };
  });
})(document.currentScript && document.currentScript.previousElementSibling);
"""


def draw(head: str, notes: list[str], trees: Mapping[str, Call], merged: Call) -> str:
    """The whole output.

    Args:
        head: What was sampled.
        notes: Further lines of text.
        trees: The tree of each rank, by its name.
        merged: The tree of all ranks together.
    """
    parts = [_div(f"<b>{html.escape(head)}</b>"), *(_div(html.escape(note)) for note in notes), _legend()]
    if len(trees) == 1:
        parts.append(_graph(merged))
    elif trees:
        parts.append(_section("all ranks together", merged, is_open=True))
        parts += [_section(name, tree) for name, tree in list(trees.items())[:MOST_RANKS]]
        if len(trees) > MOST_RANKS:
            left = len(trees) - MOST_RANKS
            parts.append(_div(f"{left} more ranks are not drawn by themselves; job.flamegraph(rank=…) draws one"))
    return _div("".join(parts), "line-height:1.4") + f"<script>{_SCRIPT}</script>"


def _section(name: str, tree: Call, *, is_open: bool = False) -> str:
    share = call_tree.in_collectives(tree) / (tree.total or 1)
    words = f"{name}: {tree.total:.1f} s" + (f", {share:.0%} in collective operations" if share >= 0.005 else "")
    summary = f"<summary>{html.escape(words)}</summary>"
    return f"<details{' open' if is_open else ''}>{summary}{_graph(tree)}</details>"


def _legend() -> str:
    kinds = (_USERS, _TORCH, _OTHER, _COLLECTIVE)
    marks = "".join(
        f'<span style="background-color:{color};color:{ink};padding:0 0.5em;margin-right:0.5em;border-radius:3px">'
        f"{name}</span>"
        for name, color, ink in kinds
    )
    return _div(
        f"{marks}<span>width: share of the time; outermost call at the top</span>", "font-size:85%;margin:4px 0"
    )


def _graph(root: Call) -> str:
    return _div(_row(root, root.total or 1.0, 0), "margin:4px 0 8px;font-size:12px")


def _row(call: Call, whole: float, depth: int) -> str:
    """What a call has called, side by side."""
    drawn = [child for child in call.by_time if child.total >= _LEAST * whole]
    if not drawn or depth == _MOST_DEPTH:
        return ""
    boxes = "".join(
        _div(_box(child, whole) + _row(child, whole, depth + 1), f"width:{100 * child.total / call.total:.3f}%")
        for child in drawn
    )
    return _div(boxes, "display:flex")


def _box(call: Call, whole: float) -> str:
    assert call.frame is not None
    _, color, ink = _kind(call)
    label = shortened(call_tree.label(call.frame), _MOST_CHARACTERS)
    if call.is_collective:
        label = f"collective: {label}"
    own = f", {call.own:.2f} s in itself" if call.own >= 0.005 and call.children else ""
    source = shortened(stack_frames.source(call.frame), _MOST_CHARACTERS) if _is_users(call) else ""
    details = f"{label}\n{call.total / whole:.1%}, {call.total:.2f} s{own}" + (f"\n{source}" if source else "")
    style = (
        f"background-color:{color};color:{ink};height:18px;line-height:18px;margin:0 1px 1px 0;overflow:hidden;"
        "white-space:nowrap;text-overflow:ellipsis;border-radius:2px"
    )
    return f'<div title="{html.escape(details)}" style="{style}">&nbsp;{html.escape(label)}</div>'


def _kind(call: Call) -> tuple[str, str, str]:
    assert call.frame is not None
    if call.is_collective:
        return _COLLECTIVE
    if _is_users(call):
        return _USERS
    return _TORCH if "/torch/" in call.frame.filename else _OTHER


def _is_users(call: Call) -> bool:
    return call.frame is not None and call_tree.is_users(call.frame)


def _div(content: str, style: str = "") -> str:
    return f'<div style="{style}">{content}</div>' if style else f"<div>{content}</div>"
