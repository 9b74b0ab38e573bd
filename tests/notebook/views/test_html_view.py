"""What a job looks like as HTML."""

from __future__ import annotations

import base64
import itertools
import math
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from notebook_accel import ConfigurationError, set_view
from notebook_accel.events import (
    Bar,
    Exited,
    Failed,
    Frame,
    Heartbeat,
    Hello,
    Location,
    Metrics,
    Phase,
    PhaseChanged,
    Raised,
    Returned,
    Stalled,
)
from notebook_accel.insight import pictures
from notebook_accel.launch.job import describe
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.notebook import views
from notebook_accel.notebook.views import static_views
from notebook_accel.panel import html_page

# What JupyterLab 4.6 leaves of an output in a notebook that is not trusted, as far as we use it.
_ALLOWED = {"bdi", "div", "span", "b", "table", "tr", "th", "td", "img", "details", "summary"}
_ALLOWED_ATTRIBUTES = {"style", "title", "colspan", "rowspan", "align", "valign", "src", "width", "height", "alt"}
_ALLOWED_STYLES = {
    "background-color", "border", "border-collapse", "border-radius", "box-sizing", "color", "display", "flex-grow",
    "flex-wrap", "font-family", "font-size", "font-weight", "height", "line-height", "margin", "max-width", "min-width",
    "overflow", "overflow-wrap", "padding", "table-layout", "text-align", "text-overflow", "vertical-align",
    "white-space", "width",
}  # fmt: skip


def a_job(size: int, *, ended: bool = False, failing: int | None = None, hosts: Sequence[str] = ("host",)) -> Job:
    job = Job("train<script>", 0, size, "2 × GPU")
    job.started -= 100
    for rank in range(size):
        job.apply(rank, Hello(1, hosts[rank * len(hosts) // size]))
        job.apply(rank, PhaseChanged(Phase.RUNNING))
        job.apply(rank, Bar(0, n=50 + rank, total=200, description="<i>epoch", rate=10.0))
        job.apply(rank, Heartbeat(2**29, 2**31, 2**33))
        for step in range(50):
            job.apply(rank, Metrics({"loss<": 1 / (step + 1) + rank}, step, at=job.started + step))
        if rank == failing:
            job.apply(rank, Failed([Raised("ValueError", "ValueError: <b>no", [])], at=1.0))
        elif ended:
            job.apply(rank, Returned())
            job.apply(rank, Exited(0))
    if ended:
        job.finish(Status.DONE if failing is None else Status.FAILED)
    return job


class Reader(HTMLParser):
    """Collects what a page is made of."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: dict[str, list[str]] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            self.attributes.setdefault(name, []).append(value or "")
        if tag != "img":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


@pytest.mark.parametrize("size", [1, 4, 16, 17, 64])
@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("failing", [None, 0])
def test_a_page_holds_only_what_an_untrusted_notebook_keeps(size: int, ended: bool, failing: int | None) -> None:
    found = read(html_page.draw(a_job(size, ended=ended, failing=failing)))
    assert found.tags <= _ALLOWED
    assert found.attributes.keys() <= _ALLOWED_ATTRIBUTES
    styles = itertools.chain.from_iterable(style.split(";") for style in found.attributes["style"])
    assert {style.partition(":")[0] for style in styles} <= _ALLOWED_STYLES


_HOSTILE = """a" onclick="b" title='c'><script>d</script>&amp;"""
"""Were it not escaped, it would end an attribute, begin another, and an element."""


def a_hostile_job(size: int, *, ended: bool) -> Job:
    """One whose every word of the user's is like that."""
    job = Job(_HOSTILE, 0, size, _HOSTILE)
    for rank in range(size):
        job.apply(rank, Hello(1, f"{_HOSTILE}{rank % 2}"))
        job.apply(rank, PhaseChanged(Phase.WAITING, _HOSTILE))
        job.apply(rank, Bar(0, n=1, total=2, description=_HOSTILE, postfix=_HOSTILE, unit=_HOSTILE, rate=1.0))
        job.apply(rank, Metrics({_HOSTILE: 1.0 + rank, f"{_HOSTILE}, once": 1.0}, 1))
        job.apply(rank, Metrics({_HOSTILE: 2.0 + rank}, 2))
    frames = [Frame(_HOSTILE, 7, _HOSTILE, _HOSTILE)]
    places = [Location(rank, Phase.WAITING, _HOSTILE, _HOSTILE, frames) for rank in range(size)]
    job.apply(None, Stalled(places, since=job.started))
    job.apply(0, Failed([Raised(_HOSTILE, _HOSTILE, [])], at=1.0))
    if ended:
        job.finish(Status.FAILED)
    return job


@pytest.mark.parametrize("size", [2, 17])
@pytest.mark.parametrize("ended", [False, True])
def test_no_word_of_the_users_leaves_its_place_in_a_page(size: int, ended: bool) -> None:
    found = read(html_page.draw(a_hostile_job(size, ended=ended)))
    assert found.tags <= _ALLOWED
    assert found.attributes.keys() <= _ALLOWED_ATTRIBUTES
    titles = found.attributes["title"]
    if size == 2:  # a detail, a metric's name, and what a bar says
        assert any("1/2" in title and _HOSTILE in title for title in titles)
    if ended:
        assert _HOSTILE in titles  # the name above a chart
        assert all(words.startswith(f"{_HOSTILE}: ") for words in found.attributes["alt"])
        assert any(words.startswith(f"{_HOSTILE}, once: ") for words in titles)


def test_a_page_shows_each_rank() -> None:
    drawn = html_page.draw(a_job(3))
    assert "25% · 15 s left · &lt;i&gt;epoch 50/200 10.0 it/s" in drawn
    assert "512 MB, GPU 2.0 GB" in drawn
    assert "slowest" not in drawn  # all of them are at 25%
    assert "<bdi>loss&lt;</bdi></span>" in drawn
    assert ">2.02</span>" in drawn


def test_a_failed_rank_comes_first_with_its_error() -> None:
    drawn = html_page.draw(a_job(4, ended=True, failing=2))
    ranks = re.findall(r"<td[^>]*><b>(\d+)</b>", drawn)
    assert ranks == ["2", "0", "1", "3"]
    assert "ValueError: &lt;b&gt;no" in drawn


def test_many_ranks_are_a_grid_that_unfolds_at_the_end() -> None:
    drawn = html_page.draw(a_job(64, failing=40))
    assert len(re.findall(r'title="rank \d+: ', drawn)) == 64
    assert "40 failed" in drawn
    assert "<details>" not in drawn  # it would fold again three times a second
    assert "All 64 ranks" in html_page.draw(a_job(64, ended=True))


def test_a_grid_stays_small() -> None:
    assert len(html_page.draw(a_job(64))) < 64 * 700


@pytest.mark.parametrize("ended", [False, True])
def test_metrics_without_a_chart_are_counted(ended: bool) -> None:
    job = a_job(2, ended=ended)
    for step in (1, 2):
        job.apply(0, Metrics({f"m{number}": 1.0 for number in range(20)}, step))
    names = job.charts.names
    for shown, drawn in ((12, html_page.draw(job)), (8, describe.describe(job))):
        assert f"and {len(names) - shown} more; job.metrics has them all" in drawn
    assert "more; job.metrics" not in html_page.draw(a_job(2, ended=ended))


def test_a_metric_that_was_reported_once_is_a_line_and_takes_no_place_of_a_chart() -> None:
    job = a_job(2, ended=True)
    job.apply(0, Metrics({f"once/{number}": number + 0.5 for number in range(20)}, 1))
    drawn = html_page.draw(job)
    assert drawn.count("<img") == html_page.draw(a_job(2, ended=True)).count("<img")
    assert "more; job.metrics" not in drawn
    assert re.search(r"once/19</bdi> <b[^>]*>19.5</b> <span[^>]*>at step 1</span>", drawn)


def test_ranks_whose_values_are_written_the_same_have_no_range() -> None:
    job = a_job(2, ended=True)
    for rank in (0, 1):
        job.apply(rank, Metrics({"seconds": 19.87001 + rank / 1e5, "apart": rank, "odd": math.nan}, 1))
    drawn = html_page.draw(job)
    assert "0 to 1 over ranks, at step 1" in drawn
    assert "2 NaN, first at step 1" in drawn
    assert "19.87 to 19.87" not in drawn


def test_what_may_stay_when_the_kernel_is_gone_says_of_when_it_is() -> None:
    said = re.compile(r"</span>&ensp;on \d{4}-\d\d-\d\d at \d\d:\d\d:\d\d")
    assert said.search(html_page.draw(a_job(2), fallback=True))
    assert not said.search(html_page.draw(a_job(2)))
    assert not said.search(html_page.draw(a_job(2, ended=True), fallback=True))
    assert " left" not in html_page.draw(a_job(2), fallback=True).partition("<table")[0]


def test_rows_keep_their_number_and_place_while_a_job_runs() -> None:
    job = a_job(4)
    before = html_page.draw(job).count("<tr>")
    for n in range(60, 200, 20):
        job.apply(1, Bar(0, n=n, total=200))
        assert html_page.draw(job).count("<tr>") == before


def a_stall(job: Job) -> Stalled:
    frames = [Frame("In[5]", 7, "train", "dist.barrier(<)")]
    places = [Location(rank, Phase.WAITING, "barrier<", f"In[5] line {rank}", frames) for rank in range(len(job.ranks))]
    return Stalled(places, since=job.started)


@pytest.mark.parametrize("told", [set(), {"Progress"}, {"Metrics"}, {"Metrics", "Usage"}])
def test_in_the_end_there_are_only_columns_that_hold_something(told: set[str]) -> None:
    job = Job("train", 0, 2)
    job.started -= 100
    said = {"Progress": Bar(0, n=1, total=2), "Metrics": Metrics({"loss": 1.0})}
    for rank in range(2):
        job.apply(rank, Returned())
    for column in told & said.keys():
        job.apply(1, said[column])
    for rank in range(2 if "Usage" in told else 0):
        job.apply(rank, Heartbeat(2**29))
    metrics = "loss" if "Metrics" in told else ""

    def titles(drawn: str) -> list[str]:
        return [re.sub("<[^>]*>", "", title) for title in re.findall("<th[^>]*>(.*?)</th>", drawn)]

    assert titles(html_page.draw(job)) == ["Rank", "Progress", f"{metrics}Usage"]
    job.finish(Status.DONE)
    drawn = html_page.draw(job)
    progress = ["Progress"] if "Progress" in told else []
    parts = [metrics + ("Usage" if "Usage" in told else "")] if told & {"Metrics", "Usage"} else []
    assert titles(drawn) == ["Rank", *progress, *parts]
    table = drawn.partition("<th")[2].partition("</table>")[0]
    assert all(row.count("<td") == 1 + len(progress) + len(parts) for row in table.split("<tr")[1:])
    assert drawn.replace('title="512 MB"', "").count("512 MB") == (2 if "Usage" in told else 0)


def test_a_stall_takes_the_place_of_an_empty_line() -> None:
    job = a_job(2)
    job.apply(1, PhaseChanged(Phase.WAITING, "barrier< at In[5] line 1"))
    before = html_page.draw(job)
    job.apply(None, a_stall(job))
    drawn = html_page.draw(job)
    above, table, below = drawn.partition("</table>")
    assert below.count("In[5] line 7 in train: dist.barrier(&lt;)") == 1  # both ranks are there
    assert (above + table).count("<div") == before.partition("</table>")[0].count("<div")
    assert drawn.count("<tr>") == before.count("<tr>")
    assert "rank 0 waits in barrier&lt; at In[5] line 0; rank 1 waits in barrier&lt; at In[5] line 1" in drawn
    assert "barrier&lt; at In[5] line 1&nbsp;</div></td>" in drawn
    found = read(drawn)
    assert found.tags <= _ALLOWED
    assert found.attributes.keys() <= _ALLOWED_ATTRIBUTES


def test_a_job_that_was_stopped_while_it_had_stalled_keeps_that() -> None:
    job = a_job(2)
    job.apply(None, a_stall(job))
    job.finish(Status.INTERRUPTED)
    stacks = html_page.draw(job).partition("<details>")[2]
    assert "<b>ranks 0-1</b>" in stacks
    assert "dist.barrier(&lt;)" in stacks
    assert "ranks 0-1:\nIn[5] line 7 in train: dist.barrier(<)" in describe.describe(job)
    assert "they wait for each other forever" in html_page.draw(job)
    assert "no progress for" not in html_page.draw(a_job(2))


@pytest.mark.smoke
def test_a_chart_is_a_picture_of_the_metric() -> None:
    found = read(html_page.draw(a_job(2, ended=True)))
    (source,) = found.attributes["src"]
    picture = ElementTree.fromstring(base64.b64decode(source.partition("base64,")[2]))
    assert [child.tag.rpartition("}")[2] for child in picture] == ["style", "path", "polygon", "polyline"]
    said = "loss<: 0.52, 0.02 to 1.02 over ranks, last at step 49, first 1.5 at step 0, best mean 0.52 at step 49, "
    assert found.attributes["alt"] == [said + "min 0.02 at step 49, max 2 at step 0"]


def test_a_chart_has_numbers_at_its_axes() -> None:
    drawn = html_page.draw(a_job(2, ended=True))
    numbers = re.findall(r"<td [^>]*font-size:11px[^>]*>([^<]+)</td>", drawn)
    assert numbers == ["2", "1", "0", "0", "step", "49"]  # from the top down, then from left to right


def test_the_axis_of_a_chart_begins_with_the_first_step_even_if_its_value_is_not_a_number() -> None:
    job = Job("train", 0, 1)
    job.apply(0, PhaseChanged(Phase.RUNNING))
    for step in range(300):
        job.apply(0, Metrics({"loss": math.nan if step % 7 == 0 else 1.0}, step, at=float(step)))
    job.apply(0, Returned())
    job.apply(0, Exited(0))
    job.finish(Status.DONE)
    numbers = re.findall(r"<td [^>]*font-size:11px[^>]*>([^<]+)</td>", html_page.draw(job))
    assert numbers[-3:] == ["0", "step", "299"]


def test_a_chart_has_the_numbers_of_its_steps_below_the_picture_and_not_beyond() -> None:
    drawn = html_page.draw(a_job(2, ended=True))
    widths = re.findall(r"<td style=\"[^\"]*font-size:11px[^\"]*width:(\d+)%;", drawn)
    assert widths == ["33"] * 3


@pytest.mark.parametrize("ended", [False, True])
def test_a_name_written_from_right_to_left_does_not_turn_its_value_around(ended: bool) -> None:
    job = a_job(1)
    for step in range(3):
        job.apply(0, Metrics({"\N{RIGHT-TO-LEFT OVERRIDE}evil": 3.472}, step, at=job.started + step))
    if ended:
        job.apply(0, Returned())
        job.apply(0, Exited(0))
        job.finish(Status.DONE)
    drawn = html_page.draw(job)
    shown = re.sub(r"(title|alt)=\"[^\"]*\"", "", drawn)
    assert "<bdi>\N{RIGHT-TO-LEFT OVERRIDE}evil</bdi></span>" in drawn
    assert shown.count("\N{RIGHT-TO-LEFT OVERRIDE}") == shown.count("<bdi>\N{RIGHT-TO-LEFT OVERRIDE}") > 1


def on_two_machines(size: int) -> Job:
    return a_job(size, ended=True, failing=size - 1, hosts=("ada", "bob"))


def test_ranks_of_several_machines_stand_below_their_names() -> None:
    names = r"<b>(ada|bob|\d+)</b>"
    assert re.findall(names, html_page.draw(on_two_machines(4))) == ["bob", "3", "ada", "0", "1", "bob", "2"]
    found = re.findall(r"<b>(ada|bob)</b>", html_page.draw(on_two_machines(20)).partition("<details>")[0])
    assert found == ["bob", "ada", "bob"]  # the one that failed, then the grid
    lines = describe.describe(on_two_machines(4), metrics=False).splitlines()
    assert [line.split(":")[0].split("  ")[0] for line in lines[1:]] == [
        *("on bob", "rank 3", "on ada", "rank 0", "rank 1", "on bob", "rank 2")
    ]


def test_a_single_machine_is_not_named() -> None:
    job = a_job(4)
    assert "host" not in html_page.draw(job) + describe.describe(job)


def test_a_brief_job_is_one_line() -> None:
    job = Job("f", 0, 8)
    job.finish(Status.DONE)
    assert "<table" not in html_page.draw(job)
    assert html_page.draw(job).startswith("<!-- f() done -->\n"), "what JupyterLab shows of a collapsed output"
    assert html_page.bundle(job)["text/plain"].startswith("f() on 8 ranks: done")
    assert "\n" not in html_page.bundle(job)["text/plain"]


def luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it."""
    dark, light = sorted(map(luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize(("paper", "ink"), pictures.INK.items())
def test_words_on_a_color_can_be_read(paper: str, ink: str) -> None:
    assert contrast(paper, ink) >= 4.5


@pytest.mark.parametrize("color", [pictures.BLUE, pictures.GREEN, pictures.EDGE])
@pytest.mark.parametrize("theme", ["#ffffff", "#111111"])
def test_bars_can_be_seen_in_light_and_dark(color: str, theme: str) -> None:
    assert contrast(color, theme) >= 3


def test_nbconvert_shows_what_stays_in_a_notebook() -> None:
    import nbconvert  # not by whoever only collects tests: it takes seconds
    import nbformat

    bundle = dict(html_page.bundle(a_job(2, ended=True)))
    cell = nbformat.v4.new_code_cell("train()", outputs=[nbformat.v4.new_output("display_data", bundle)])
    notebook = nbformat.v4.new_notebook(cells=[cell])
    body, _ = nbconvert.HTMLExporter().from_notebook_node(notebook)
    for part in (*read(bundle["text/html"]).attributes["src"], "512 MB, GPU 2.0 GB", "2 × GPU"):
        assert part in body
    cleaned, _ = nbconvert.HTMLExporter(sanitize_html=True).from_notebook_node(notebook)
    assert "512 MB, GPU 2.0 GB" in cleaned


def test_the_environment_chooses_a_view(monkeypatch: pytest.MonkeyPatch) -> None:
    assert views.choose() is static_views.HtmlView
    monkeypatch.setenv("NOTEBOOK_ACCEL_VIEW", "text")
    assert views.choose().__name__ == "TextView"
    monkeypatch.setenv("NOTEBOOK_ACCEL_VIEW", "texts")
    with pytest.raises(ConfigurationError, match="NOTEBOOK_ACCEL_VIEW: there is no view 'texts'"):
        views.choose()


def test_set_view_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTEBOOK_ACCEL_VIEW", "text")
    set_view("html")
    try:
        assert views.choose() is static_views.HtmlView
    finally:
        set_view(None)


@pytest.mark.parametrize("name", ["", "panel", 3])
def test_an_unknown_view_is_an_error(name: str) -> None:
    said = r"set_view\(\): there is no view .*; choose one of widget, html, text"
    with pytest.raises(ConfigurationError, match=said):
        set_view(name)


def test_a_rank_without_bars_has_no_track_and_one_that_is_done_a_full_one() -> None:
    job = Job("train", 0, 2)
    job.started -= 100
    for rank in range(2):
        job.apply(rank, PhaseChanged(Phase.RUNNING))
    assert "border:1px solid" not in html_page.draw(job)
    job.apply(0, Bar(0, n=3, description="working"))
    assert "border:1px solid" not in html_page.draw(job)
    for rank in range(2):
        job.apply(rank, Returned())
    job.finish(Status.DONE)
    assert re.findall(r"width:([\d.]+)%;height:100%", html_page.draw(job)) == ["100.0"]


def test_the_rank_that_others_wait_for_is_marked() -> None:
    job = a_job(2)
    job.apply(None, Stalled([Location(0, Phase.WAITING, "all_reduce"), Location(1, Phase.RUNNING)], since=job.started))
    assert html_page.draw(job).count("blocking others") == 1


def test_choices_that_were_made_for_the_user_stand_in_the_page() -> None:
    job = Job("train", 0, 2, notice="No GPU found; using <2>")
    for drawn in (html_page.draw(job), html_page.draw(job, fallback=True)):
        assert "No GPU found; using &lt;2&gt;" in drawn
    assert describe.describe(job).splitlines()[1] == job.notice


def test_the_value_of_a_metric_with_a_long_name_is_shown() -> None:
    job = a_job(1)
    job.apply(0, Metrics({"validation/accuracy/of the whole set": 0.25}))
    drawn = html_page.draw(job)
    assert ">0.25</span>" in drawn
    assert "<bdi>validation/accuracy/of the whole set</bdi>" in drawn
