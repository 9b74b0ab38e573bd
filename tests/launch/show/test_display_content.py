"""What ranks display differently in one place, side by side."""

from __future__ import annotations

import pytest

from notebook_accel.launch.show.display_content import Content, compose, fits

TABLE = "<div><style scoped>.dataframe td { color: red }</style><table><tr><td>1<br></td></tr></table></div>"


@pytest.mark.parametrize("html", [TABLE, "<b>1</b>", "1 &lt; 2", '<svg><path d="M0 0"/></svg>', '<img src="a.png"/>'])
def test_html_whose_tags_match_fits(html: str) -> None:
    assert fits({"text/html": html, "text/plain": "a table"})


@pytest.mark.parametrize(
    "html",
    [
        *("</details>", "<div>", "<b><i></b></i>", "<div/>", "<!-- ", "<script>1</script>", "<plaintext>"),
        *('<p class="', "<body></body>", "<style>b {", "<textarea></textarea>", "<![CDATA[", "<?php"),
    ],
)
def test_html_that_could_reach_beyond_its_part_does_not_fit(html: str) -> None:
    assert not fits({"text/html": html})


@pytest.mark.parametrize("type", ["text/plain", "application/vnd.jupyter.widget-view+json", "image/svg+xml"])
def test_what_is_neither_html_nor_a_picture_does_not_fit(type: str) -> None:
    assert not fits({type: "a"})
    assert type == "text/plain" or not fits({type: "a", "text/html": "<b>a</b>"})


def test_a_picture_has_its_size_and_a_text_in_its_place() -> None:
    picture = ({"image/png": "aa\nbb\n", "text/plain": 'Figure "<1>"'}, {"image/png": {"width": 30}})
    html = compose({"[0]": picture, "[1]": picture})["text/html"]
    image = '<img src="data:image/png;base64,aabb" alt="[0] Figure &quot;&lt;1&gt;&quot;" width="30">'
    assert image in html


@pytest.mark.parametrize(
    ("type", "labeled"),
    [
        ("text/html", compose({"<1>": ({"text/html": "a"}, {})})["text/html"]),
        ("image/png", compose({"<1>": ({"image/png": "a"}, {})})["text/html"]),
        ("text/markdown", "&lt;1&gt;\n\na"),
        ("text/latex", "&lt;1&gt; a"),
        ("text/plain", "<1> a"),
    ],
)
def test_a_label_is_in_the_same_output(type: str, labeled: str) -> None:
    content = Content({type: "a"}, {}).labeled("<1>")
    assert content is not None
    assert labeled in content.data.values()


def test_html_that_fits_nowhere_has_its_label_before_it() -> None:
    content = Content({"text/html": "</p>", "text/plain": "a\nb"}, {}).labeled("<1>")
    assert content is not None
    assert content.data == {"text/html": "<div>&lt;1&gt;</div>\n</p>", "text/plain": "<1>\na\nb"}


def test_labels_and_texts_are_escaped_and_html_is_kept() -> None:
    found = compose({"<0>": ({"text/html": TABLE, "text/plain": "t"}, {}), "[1]": ({"text/html": "<b>b</b>"}, {})})
    assert "<summary>&lt;0&gt;</summary>\n" + TABLE + "\n</details>" in found["text/html"]
    assert found["text/plain"] == "<0>\nt\n[1]\n"


def test_the_first_parts_are_open_and_all_can_be_folded() -> None:
    html = compose({f"[{rank}]": ({"text/html": "<b>b</b>"}, {}) for rank in range(9)})["text/html"]
    assert (html.count("<details"), html.count(" open>"), html.count("</details>")) == (9, 8, 9)
