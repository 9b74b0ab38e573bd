import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_accel import events
from notebook_accel.errors import StreamError
from notebook_accel.events import Event, Phase, PhaseChanged, Returned, encoding, from_wire, is_sound, to_wire

EVENTS = sorted(Event.__subclasses__(), key=lambda cls: cls.kind)

finite = st.floats(-1e60, 1e60)
text = st.text(st.characters(exclude_categories=()), max_size=20)  # lone surrogates too, as in undecodable paths
blobs = st.lists(st.binary(max_size=20), max_size=3)
frames = st.builds(events.Frame, filename=text, lineno=st.integers(), name=text, line=text)
raised = st.builds(events.Raised, type_name=text, text=text, frames=st.lists(frames, max_size=3), link=text)
threads = st.builds(events.ThreadStack, name=text, frames=st.lists(frames, max_size=3), call=text, main=st.booleans())
places = st.builds(
    events.Location,
    rank=st.integers(),
    phase=st.sampled_from(Phase),
    doing=text,
    where=text,
    frames=st.lists(frames, max_size=3),
)
collectives = st.builds(
    events.Collective,
    group=text,
    group_label=text,
    number=st.integers(),
    operation=text,
    shapes=text,
    size=st.integers(),
    seconds_ago=finite,
    done=st.booleans(),
    seconds=st.none() | finite,
    between_two=st.booleans(),
)
arrays = st.builds(events.LiveArray, name=text, device=text, nbytes=st.integers(), what=text, frame=st.none() | frames)
held = st.builds(events.OutOfMemory, device=text, arrays=st.lists(arrays, max_size=3), note=text)
FIELDS: dict[Any, Any] = {
    "Sequence[LiveArray]": st.lists(arrays, max_size=3),
    "OutOfMemory | None": st.none() | held,
    "bool": st.booleans(),
    "int": st.integers(),
    "float": finite,
    "str": text,
    "Sequence[str]": st.lists(text, max_size=4),
    "int | None": st.none() | st.integers(),
    "float | None": st.none() | finite,
    "Phase": st.sampled_from(Phase),
    "Blobs": blobs,
    "str | None": st.none() | text,
    "Sequence[int | None]": st.lists(st.none() | st.integers(), max_size=4),
    "Sequence[float]": st.lists(finite, max_size=4),
    "Sequence[Sequence[str]]": st.lists(st.lists(text, max_size=3), max_size=3),
    "Sequence[int]": st.lists(st.integers(), max_size=4),
    "Frame | None": st.none() | frames,
    "Sequence[Frame]": st.lists(frames, max_size=3),
    "Sequence[ThreadStack]": st.lists(threads, max_size=3),
    "Sequence[HotLine]": st.lists(
        st.builds(events.HotLine, part=text, where=text, source=text, share=finite), max_size=3
    ),
    "Sequence[Location]": st.lists(places, max_size=3),
    "Sequence[Collective]": st.lists(collectives, max_size=3),
    "Sequence[Raised]": st.lists(raised, max_size=3),
    "Rule": st.builds(
        events.Rule,
        metric=text,
        action=text,
        is_nan=st.booleans(),
        above=st.none() | finite,
        below=st.none() | finite,
        for_steps=st.integers(),
        patience=st.none() | st.integers(),
        min_delta=finite,
        mode=text,
        baseline=st.none() | finite,
        function=text,
    ),
    "Mapping[str, float]": st.dictionaries(text, finite, max_size=4),
    "Mapping[str, int]": st.dictionaries(text, st.integers(), max_size=4),
    "Mapping[str, str]": st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=3),
}


def built(cls: type[Event]) -> st.SearchStrategy[Event]:
    return st.builds(cls, **{field.name: FIELDS[field.type] for field in dataclasses.fields(cls)})


@given(st.one_of(*map(built, EVENTS)))
def test_every_event_survives_the_wire(event: Event) -> None:
    header, parts = to_wire(event)
    assert from_wire(json.loads(json.dumps(header)), parts) == event
    assert is_sound(event)


def test_events_cannot_be_changed() -> None:
    assert [cls for cls in EVENTS if not cls.__dataclass_params__.frozen] == []


def test_every_event_has_a_kind_of_its_own() -> None:
    assert len({cls.kind for cls in EVENTS}) == len(EVENTS) == len(encoding.EVENTS)


def test_binary_parts_stay_out_of_the_header() -> None:
    value = [b"\x80\x05", memoryview(b"\0" * 1000)]
    assert to_wire(Returned(value)) == ({"kind": "returned"}, value)


def test_phases_end_once() -> None:
    assert {phase for phase in Phase if phase.ended} == {Phase.DONE, Phase.FAILED, Phase.STOPPED}


STALLED = {"kind": "stalled"}
FAILED = {"kind": "failed", "at": 0.0}
LINK = {"type_name": "E", "text": "E: no", "frames": []}


@pytest.mark.parametrize(
    "header",
    [
        {},
        {"kind": ""},
        {"kind": "goodbye"},
        {"kind": None},
        {"kind": []},
        {"kind": {}},
        {"kind": "hello"},
        {"kind": "hello", "pid": 1, "host": "h", "more": 1},
        {"kind": "hello", "pid": 1, "host": "h", "self": 1},
        {"kind": "phase"},
        {"kind": "phase", "phase": "dancing"},
        {"kind": "phase", "phase": []},
        {"kind": "phase", "phase": None},
        FAILED,
        *[FAILED | {"chain": chain} for chain in (None, 5, [5], ["x"], [None], [[]], {"a": "b"})],
        *[FAILED | {"chain": [link]} for link in ({}, {"frames": []}, {**LINK, "more": 1})],
        *[{"kind": "stacks", "number": 1, "threads": threads} for threads in (5, [5], [{"frames": [5]}], [{}])],
        *[STALLED | {"places": places} for places in (None, [5], [{}], [{"rank": 0, "phase": "dancing"}])],
        *[FAILED | {"chain": [{**LINK, "frames": bad}]} for bad in (None, 5, [5], ["x"], [{}], [{"line": ""}])],
    ],
    ids=str,
)
def test_a_header_that_is_no_event_is_refused(header: dict[str, Any]) -> None:
    with pytest.raises(StreamError):
        from_wire(header)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(["phase", "pid", "host", "chain", "at", "detail", "frames", "value", "layout", "kind", ""])


def fits(header: dict[str, Any]) -> bool:
    """Whether a header names an event, gives each field that has no default, and none that the event has not."""
    cls = encoding.EVENTS.get(str(header.get("kind", "")))
    if cls is None:
        return False
    needed = {
        field.name
        for field in dataclasses.fields(cls)
        if (field.default, field.default_factory) == (dataclasses.MISSING, dataclasses.MISSING)
    } - {encoding.BLOB_FIELDS.get(cls)}
    return needed <= header.keys() - {"kind"} <= {field.name for field in dataclasses.fields(cls)}


fitting = st.sampled_from(EVENTS).flatmap(
    lambda cls: st.fixed_dictionaries(
        {field.name: json_values for field in dataclasses.fields(cls)}, optional={"more": json_values}
    ).map(lambda found: {**found, "kind": cls.kind})
)


strange = st.builds(
    lambda header, kind: {**header, "kind": kind},
    st.dictionaries(names, json_values, max_size=4),
    st.sampled_from([*encoding.EVENTS, "", "x"]) | json_values,
)


@given(fitting | strange)
def test_a_header_is_refused_or_taken_as_it_is(header: dict[str, Any]) -> None:
    if not fits(header):
        with pytest.raises(StreamError):
            from_wire(header)
        return
    cls = encoding.EVENTS[header["kind"]]
    apart = {*encoding.NESTED_FIELDS.get(cls, ()), encoding.BLOB_FIELDS.get(cls)}
    try:
        event = from_wire(header)
    except StreamError:
        assert apart & header.keys(), "it is plain"
    else:
        assert type(event) is cls
        written, _ = to_wire(event)
        plain = {name: value for name, value in header.items() if name not in apart}
        assert {name: written[name] for name in plain} == plain


def test_a_refusal_is_short() -> None:
    with pytest.raises(StreamError) as refused:
        from_wire({"kind": "x" * 10**6})
    assert len(str(refused.value)) < 1000


def test_a_refused_header_is_kept_as_the_cause() -> None:
    with pytest.raises(StreamError, match="'phase'") as refused:
        from_wire({"kind": "phase", "phase": "dancing"})
    assert isinstance(refused.value.__cause__, ValueError)
    assert PhaseChanged(Phase.IDLE) == from_wire({"kind": "phase", "phase": "idle"})
