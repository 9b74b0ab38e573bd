"""The tables of `scripts/mutate` fit the product and the tests, so that the next run of it needs no repair first."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from scripts import mutate
from scripts.mutate import ROOT, Fault


@functools.cache
def text(name: str) -> str:
    path = ROOT / name
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def problems(fault: Fault) -> Iterator[str]:
    if text(fault.file).count(fault.find) != 1:
        yield f"what it replaces does not occur once in {fault.file}"
    if fault.replace == fault.find or not fault.tests:
        yield "it changes nothing, or no test is to see it"
    for test in fault.tests:
        path, *names = re.sub(r"\[.*", "", test).split("::")
        if not (ROOT / path).exists():
            yield f"there is no {path}"
        for name in names:
            if not re.search(rf"^\s*(?:async )?(?:def|class) {name}\b", text(path), re.MULTILINE):
                yield f"there is no {name} in {path}"


def test_each_fault_fits_one_place_and_its_tests_exist() -> None:
    found = mutate.faults()
    assert len(found) > 300
    assert [f"{each.area}: {each.name}: {said}" for each in found for said in problems(each)] == []


def test_a_fault_that_no_longer_fits_is_found() -> None:
    misfit = Fault("ranks", "a name", "notebook_accel/errors.py", "no such text", "another", ("tests/test_gone.py::a",))
    assert len(list(problems(misfit))) == 3
