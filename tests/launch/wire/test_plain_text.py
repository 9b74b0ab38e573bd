"""The user's text, made harmless: nothing in it may act on a terminal, or pretend that someone else wrote it."""

from __future__ import annotations

import random
import unicodedata

from notebook_accel.launch.wire.plain_text import quoted, visible


def test_what_draws_nothing_is_shown_and_colors_are_left_out() -> None:
    assert visible("\x1b[31mred\x1b[0m\tplain é 漢 🙂") == "red\tplain é 漢 🙂"
    assert visible("a\rb\x1b]0;title\x07\u202ec\u200b\u2028d\x85\udc80") == (
        r"a\rb\x1b]0;title\x07\u202ec\u200b\u2028d\x85\udc80"
    )


def test_no_line_of_a_quoted_text_begins_without_its_bar() -> None:
    assert quoted("one\n| two\n\nthree\n", 100) == "| one\n| | two\n|\n| three"
    assert quoted("", 100) == "|"
    draw = random.Random(0)
    alphabet = [chr(code) for code in (*range(0x100), *range(0x2000, 0x2070), 0xFEFF, 0xE0041, 0xDC80)]
    for _ in range(300):
        text = "".join(draw.choices([*alphabet, "\n", "| ", "```"], k=draw.randrange(200)))
        found = quoted(text, 150)
        for line in found.splitlines():  # which splits at more than newlines
            assert line.startswith("|")
            assert {unicodedata.category(each) for each in line.replace("\t", " ")}.isdisjoint({"Cc", "Cf", "Cs", "Zl"})


def test_a_long_quoted_text_has_both_of_its_ends() -> None:
    found = quoted("a" * 1000 + "b" * 1000, 400)
    assert (found[:4], found[-2:], len(found) < 500) == ("| aa", "bb", True)
    assert "characters left out" in found
