"""The faults that `scripts/mutate` chooses from."""

from __future__ import annotations

import ast

from scripts.mutate import Fault, faults

TEXT = '''"""A text of 3 lines."""
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import os
def count(size: "int | None" = 1) -> int:
    """Counts – from 1."""
    assert size == 2, f"{size + 1}"
    if size is None or not size:
        raise ValueError("ä")
    while True:
        size += 1
        print("é", size * 2)
        if size > 5: break
    return size
'''


def mended(fault: Fault) -> str:
    text = TEXT.encode()
    return (text[: fault.start] + fault.after.encode() + text[fault.end :]).decode()


def test_each_fault_is_another_program_of_the_same_lines() -> None:
    found = list(faults("notebook_accel/a.py", TEXT))
    programs = [ast.unparse(ast.parse(mended(fault))) for fault in found]
    assert len({*programs, ast.unparse(ast.parse(TEXT))}) == len(found) + 1


def test_what_runs_is_changed_and_neither_types_nor_texts_are() -> None:
    found = [str(fault).removeprefix("notebook_accel/a.py:") for fault in faults("notebook_accel/a.py", TEXT)]
    assert found == [
        "5: 1  →  (2)",
        "8: size is None or not size  →  (size is None and (not size))",
        "8: size is None  →  (size is not None)",
        "8: not size  →  (size)",
        '9: raise ValueError("ä")  →  pass',
        "10: True  →  (False)",
        "11: size += 1  →  pass",
        "11: 1  →  (2)",
        '12: print("é", size * 2)  →  pass',
        "12: size * 2  →  (size // 2)",
        "12: 2  →  (3)",
        "13: size > 5  →  (size >= 5)",
        "13: 5  →  (6)",
        "13: break  →  continue",
        "14: return size  →  return None",
    ]
