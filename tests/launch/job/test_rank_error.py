import faulthandler
import linecache
import pickle
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import notebook_accel
from notebook_accel import RankError, RankTimeoutError, notebook_launcher
from notebook_accel.events import Exited, Failed, Frame, Raised, Returned
from notebook_accel.launch.job import rank_error
from notebook_accel.launch.job.rank_state import RankState
from notebook_accel.launch.show import console
from notebook_accel.launch.wire import stack_frames as frames

PACKAGE = Path(notebook_accel.__file__).parent
GIGABYTE = 2**30


def raised(
    rank: int, text: str = "ValueError: no", *, at: float = 1.0, exception: BaseException | None = None, **more: Any
) -> RankState:
    chain = [Raised(text.partition(":")[0], text, [Frame("/home/me/train.py", 3, "step", "loss.backward()")])]
    event = Failed(chain, at, exception=[pickle.dumps(exception)] if exception else (), **more)
    return RankState(rank, failed=event, exited=Exited(1, at=at + 0.01))


def died(
    rank: int, *, at: float = 1.0, signum: int | None = None, code: int | None = None, crash: str = "", **more: Any
) -> RankState:
    return RankState(rank, exited=Exited(code, signum, at, crash=crash), **more)


def returned(rank: int) -> RankState:
    return RankState(rank, returned=Returned(), exited=Exited(0, at=1.0))


def stopped(rank: int) -> RankState:
    return RankState(rank, stopped=True, exited=Exited(None, signal.SIGTERM, at=3.0))


def error(*states: RankState, oom_killed: bool = False) -> RankError:
    return rank_error.error(states, oom_killed=oom_killed)


PEER = "RuntimeError: Connection closed by peer"
SYNTAX = '  File "<string>", line 1\n    x = = 1\n        ^\nSyntaxError: invalid syntax'

# Which one is the cause


@pytest.mark.parametrize(
    ("states", "causes"),
    [
        ([raised(0, at=2.0), raised(1, "KeyError: 'a'", at=1.0)], [(1,), (0,)]),
        ([raised(0, "KeyError: 'a'", at=1.0), raised(1, at=1.0)], [(0,), (1,)]),
        ([raised(0, PEER, at=1.0, from_peer=True), raised(1, at=2.0)], [(1,), (0,)]),
        ([raised(0, PEER, at=1.0, from_peer=True), died(1, signum=9, at=9.0)], [(1,), (0,)]),
        ([raised(0, at=1.0), died(1, signum=9, at=1.05)], [(1,), (0,)]),  # a death is noticed late
        ([raised(0, at=1.0), died(1, signum=9, at=1.5)], [(0,), (1,)]),
        ([died(0, signum=11, at=2.0), died(1, signum=9, at=1.0)], [(1,), (0,)]),
        (
            [raised(0, PEER, at=1.0, from_peer=True), raised(1, "DistStoreError: b", at=0.5, from_peer=True)],
            [(1,), (0,)],
        ),
        ([returned(0), raised(1), stopped(2)], [(1,)]),
        ([returned(0), died(1, code=0)], [(1,)]),
    ],
)
def test_the_cause_comes_first(states: list[RankState], causes: list[tuple[int, ...]]) -> None:
    found = error(*states)
    assert [each.ranks for each in found.failures] == causes
    assert found.rank == causes[0][0]


@pytest.mark.parametrize(
    ("states", "groups"),
    [
        ([raised(0), raised(1, at=2.0), raised(2)], [(0, 1, 2)]),
        ([raised(0), raised(1, "KeyError: 'a'", at=2.0), raised(2)], [(0, 2), (1,)]),
        ([raised(0, at=3.0), raised(1, at=2.0), returned(2)], [(0, 1)]),
        ([died(0, signum=9, resident=GIGABYTE), died(1, signum=9, resident=2 * GIGABYTE)], [(0, 1)]),
        ([died(0, signum=9), died(1, signum=11)], [(0,), (1,)]),
        ([died(0, code=3), died(1, code=4)], [(0,), (1,)]),
        ([raised(0), raised(1, exit_code=1)], [(0,), (1,)]),
        (
            [raised(0, f"{PEER} [::1]:7", from_peer=True), died(1, signum=9), raised(2, PEER, from_peer=True)],
            [(1,), (0, 2)],
        ),
    ],
)
def test_ranks_that_failed_alike_are_one_entry(states: list[RankState], groups: list[tuple[int, ...]]) -> None:
    assert [each.ranks for each in error(*states).failures] == groups


def test_the_same_error_in_another_line_is_another_failure() -> None:
    first, second = raised(0), raised(1)
    assert second.failed is not None
    second.failed.chain[0].frames[0].__dict__["lineno"] = 4
    assert len(error(first, second).failures) == 2


def test_a_very_long_text_is_cut_where_it_is_shown_and_kept_whole_in_the_failures() -> None:
    text = f"ValueError: {'x' * 60_000}"
    found = error(raised(0, text), raised(1, text))
    assert len(str(found)) < 12_000
    assert "loss.backward()\nValueError: xxx" in str(found)
    assert " characters left out] … xxx" in str(found)
    assert str(found).endswith("\n\nThe whole text is in the error's failures[0].detail.")
    assert text in found.failures[0].detail
    assert "failures[0]" not in str(error(raised(0, "ValueError: no")))


def test_the_first_of_those_that_failed_alike_gives_the_exception() -> None:
    late, early = raised(0, at=2.0, exception=ValueError("late")), raised(1, at=1.0, exception=ValueError("early"))
    assert str(error(late, early).__cause__) == "early"


def test_ranks_that_lost_others_do_not_hide_the_cause() -> None:
    text = str(error(raised(0, PEER, from_peer=True), died(1, signum=9), raised(2, PEER, from_peer=True)))
    assert text.startswith("rank 1 of 3 was killed by SIGKILL")
    assert text.endswith("Ranks 0,2 of 3 lost the connection to another rank")
    assert PEER not in text


# How it reads


@pytest.mark.parametrize(
    ("states", "says"),
    [
        ([raised(0)], "rank 0 raised ValueError: no"),
        ([raised(0), returned(1)], "rank 0 of 2 raised ValueError: no"),
        ([raised(0), raised(1)], "both ranks raised ValueError: no"),
        ([raised(rank) for rank in range(4)], "all 4 ranks raised ValueError: no"),
        ([raised(0), raised(1), raised(2), returned(3)], "ranks 0-2 of 4 raised ValueError: no"),
        ([raised(0), returned(1), raised(2)], "ranks 0,2 of 3 raised ValueError: no"),
        ([raised(0, "ValueError: a\nb")], "rank 0 raised ValueError: a"),
        ([raised(0, "ValueError: they differ:\nb")], "rank 0 raised ValueError: they differ"),
        ([raised(0, "ValueError: no:")], "rank 0 raised ValueError: no:"),
        ([raised(0, SYNTAX)], "rank 0 raised SyntaxError: invalid syntax"),
        ([raised(0, stage="loading")], "rank 0 could not unpickle the function or its arguments: ValueError: no"),
        ([raised(0, "returned a value", stage="returning")], "rank 0 returned a value"),
        ([raised(0, exit_code=3)], "rank 0 exited with status 3 (sys.exit)"),
        (
            [raised(0, PEER, from_peer=True)],
            f"rank 0 raised {PEER} (its connection was lost because another rank had ended)",
        ),
        ([died(0, signum=11), returned(1)], "rank 0 of 2 was killed by SIGSEGV"),
        ([died(0, signum=11), died(1, signum=11)], "both ranks were killed by SIGSEGV"),
        ([died(0, signum=6)], "rank 0 was killed by SIGABRT: C code has aborted; see its last lines of output"),
        ([died(0, signum=9)], "rank 0 was killed by SIGKILL: by a user, or by the system because memory ran out"),
        ([died(0, signum=60)], "rank 0 was killed by signal 60"),
        ([died(0, code=3)], "rank 0 ended with status 3 before the function returned (os._exit, or C code that exits)"),
    ],
)
def test_the_first_line_says_who_and_what(states: list[RankState], says: str) -> None:
    assert str(error(*states)).splitlines()[0] == says


def test_the_ranks_of_another_machine_are_not_counted_as_of_this_one() -> None:
    # Two of the four ranks live here.
    assert "of 2" not in str(error(raised(2), returned(3)))


def test_a_system_out_of_memory_is_named() -> None:
    says = str(error(died(0, signum=9, resident=3 * GIGABYTE), oom_killed=True))
    assert says.splitlines()[0] == "rank 0 was killed by SIGKILL: the system ran out of memory and ended it"
    assert "It held 3.0 GB at the end" in says


@pytest.mark.parametrize(
    ("resident", "peak", "says"),
    [
        (200 * 2**20, None, "It held 200 MB at the end."),
        (GIGABYTE, 2 * GIGABYTE, "It held 1.0 GB at the end, and 2.0 GB at most."),
        (GIGABYTE, GIGABYTE - 2**20, "It held 1.0 GB at the end."),
        (0, 150 * 2**20, "It had just started, and held 150 MB at most."),
    ],
)
def test_a_death_comes_with_the_memory_that_was_held(resident: int, peak: int | None, says: str) -> None:
    state = RankState(0, resident=resident, exited=Exited(None, 9, 1.0, peak))
    assert error(state).failures[0].detail == says


def test_every_way_to_fail_is_told_and_who_was_stopped() -> None:
    text = str(error(raised(0, "A: a"), raised(1, "B: b", at=2.0), stopped(2), stopped(3), returned(4)))
    assert text == "\n".join(
        [
            "rank 0 of 5 raised A: a",
            "",
            'File "/home/me/train.py", line 3, in step',
            "    loss.backward()",
            "A: a",
            "",
            "Rank 1 of 5 raised B: b",
            "",
            "Ranks 2-3 were stopped.",
        ]
    )


def test_a_chain_of_exceptions_reads_as_pythons_own() -> None:
    chain = [
        Raised("KeyError", "KeyError: 'a'", [Frame("/a.py", 1, "f", "x['a']")], "cause"),
        Raised("TypeError", "TypeError: b", [], "context"),
        Raised("ValueError", "ValueError: c", [Frame("/a.py", 2, "g", "")]),
    ]
    assert error(RankState(0, failed=Failed(chain, 1.0))).failures[0].detail.splitlines() == [
        'File "/a.py", line 1, in f',
        "    x['a']",
        "KeyError: 'a'",
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        "TypeError: b",
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        'File "/a.py", line 2, in g',
        "ValueError: c",
    ]


def test_a_recursion_is_not_shown_a_thousand_times() -> None:
    frames = [Frame("/a.py", 1, "main", "f()")] + [Frame("/a.py", 2, "f", "f()")] * 990
    state = RankState(0, failed=Failed([Raised("RecursionError", "RecursionError: no", frames)], 1.0))
    detail = error(state).failures[0].detail
    assert len(detail.splitlines()) < 30
    assert "repeated" in detail
    other = RankState(1, failed=Failed([Raised("RecursionError", "RecursionError: no", frames[:-1])], 1.0))
    assert len(error(state, other).failures) == 1, "how deep it went before it failed is no difference"


class Notebook(console.Terminal):
    def display_name(self, filename: str) -> str:
        return "In[7]" if filename == "<cell 7>" else filename


def test_a_cell_is_shown_with_the_lines_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "current", Notebook())
    source = [f"line {number}\n" for number in range(1, 7)]
    monkeypatch.setitem(linecache.cache, "<cell 7>", (1, None, source, "<cell 7>"))
    frames = [Frame("<cell 7>", 2, "train", "line 2"), Frame("/lib.py", 9, "call", "go()")]
    state = RankState(0, failed=Failed([Raised("E", "E: no", frames)], 1.0))
    assert error(state).failures[0].detail.splitlines() == [
        "In[7], line 2, in train",
        "       1 line 1",
        "-->    2 line 2",
        "       3 line 3",
        "       4 line 4",
        'File "/lib.py", line 9, in call',
        "    go()",
        "E: no",
    ]


class NotThere(Exception):
    """Can't be unpickled by who lacks it."""

    def __reduce__(self) -> Any:
        return eval, ("no_such_name",)


@pytest.mark.parametrize(
    ("exception", "kind", "text"),
    [
        (KeyError("a"), KeyError, "'a'"),
        (SystemExit(3), SystemExit, "3"),
        (None, RuntimeError, "ValueError: no"),
        (NotThere(), RuntimeError, "ValueError: no"),
    ],
)
def test_the_original_exception_is_the_cause(exception: BaseException | None, kind: type, text: str) -> None:
    found = error(raised(0, exception=exception))
    assert type(found.__cause__) is kind
    assert str(found.__cause__) == text
    assert found.failures[0].exception is found.__cause__


def test_a_death_has_no_exception() -> None:
    assert error(died(0, signum=9)).__cause__ is None


def test_a_value_that_does_not_load_is_told() -> None:
    problem = ModuleNotFoundError("No module named 'x'")
    found = rank_error.lost_value(RankState(3), problem)
    assert str(found).startswith(
        "rank 3 returned a value that can't be unpickled in the notebook: ModuleNotFoundError: No module named 'x'. "
    )
    assert "accelerator.unwrap_model(model)" in str(found)
    assert found.__cause__ is problem
    assert found.rank == 3


# Stacks

LIBRARY = threading.__file__
RECORDED = f"""\
Thread 0x00007fd2e0a276c0 (most recent call first):
  File "{PACKAGE}/launch/rank.py", line 81 in _turn
  File "{PACKAGE}/launch/rank.py", line 71 in _attend
  File "{LIBRARY}", line 982 in run
  File "{LIBRARY}", line 1002 in _bootstrap

Thread 0x00007fd2e1a276c0 (most recent call first):
  File "/home/me/data.py", line 8 in load
  File "{LIBRARY}", line 982 in run

Current thread 0x00007fd30363db80 (most recent call first):
  File "/home/me/a file, line 2 in it.py", line 12 in step
  File "/home/me/train.py", line 40 in train
  File "{PACKAGE}/launch/payload.py", line 35 in __call__
  File "{PACKAGE}/launch/rank.py", line 122 in _run
  File "{PACKAGE}/launch/rank.py", line 62 in serve
  File "{PACKAGE}/launch/rank_process.py", line 122 in _live
  File "{PACKAGE}/launch/engines/server.py", line 360 in main
  File "<string>", line 5 in <module>
"""
SHOWN = 'File "/home/me/train.py", line 40, in train\nFile "/home/me/a file, line 2 in it.py", line 12, in step'
IDLE = "  (not in the user's code)"


@pytest.mark.parametrize(
    ("dump", "shown"),
    [
        (RECORDED, SHOWN),
        (RECORDED.replace("Current thread", "Thread"), SHOWN),
        ("\n\n".join(reversed(RECORDED.split("\n\n"))), SHOWN),
        (RECORDED.partition("Current")[2], SHOWN),
        (RECORDED.partition('  File "/home/me/a file')[0], 'File "/home/me/data.py", line 8, in load'),
        (RECORDED.replace("/home/me", str(PACKAGE)), IDLE),
        ("", IDLE),
        ("Current thread 0x00007fd30363db80 (most recent call first):\n  <no Python frame>\n", IDLE),
    ],
    ids=["whole", "from outside", "main first", "one thread", "cut off", "idle", "nothing", "no frame"],
)
def test_the_users_part_of_the_main_thread_is_shown(dump: str, shown: str) -> None:
    assert shown in rank_error.format_stack(dump)


def test_threads_of_libraries_are_not_the_users_code() -> None:
    assert rank_error.format_stack(RECORDED.replace("/home/me/data.py", str(PACKAGE))).startswith(SHOWN)


def test_a_stack_that_was_cut_off_shows_its_inner_end() -> None:
    deep = "Current thread 0x1 (most recent call first):\n" + '  File "/a.py", line 3 in f\n' * 100 + "  ...\n"
    assert 'File "/a.py", line 3, in f' in rank_error.format_stack(deep)


def test_a_stack_as_this_python_writes_it_is_read() -> None:
    def serve() -> str:
        with tempfile.TemporaryFile() as file:
            faulthandler.dump_traceback(file)
            file.seek(0)
            return file.read().decode()

    shown = rank_error.format_stack(serve())
    assert f'File "{__file__}", line' in shown
    assert "in serve\n    faulthandler.dump_traceback(file)" in shown


def test_a_crash_shows_where_it_was() -> None:
    dump = "Fatal Python error: Segmentation fault\n\n" + RECORDED + "\nExtension modules: numpy.core (total: 1)\n"
    detail = error(died(0, signum=11, crash=dump)).failures[0].detail
    assert detail.startswith("It was here:\n" + SHOWN)
    assert detail.endswith("It had just started.")


def test_only_a_crash_shows_where_it_was() -> None:
    assert "It was here" not in str(error(died(0, signum=9, crash=RECORDED)))


# Out of time


def test_who_is_late_is_shown_with_where_it_is() -> None:
    states = [RankState(0), RankState(1), returned(2), RankState(3)]
    found = rank_error.timeout(states, {rank: frames.parse_dump(RECORDED) for rank in (0, 3)}, 2.5)
    assert isinstance(found, TimeoutError)
    assert found.failures[0].ranks == (0, 1, 3)
    assert str(found).split("\n\n") == [
        "ranks 0-1,3 of 4 did not finish within 2.5 s.",
        "Ranks 0,3 were here:\n" + SHOWN,
        "Rank 1 was here:\n" + IDLE,
    ]


def test_ranks_that_have_returned_and_do_not_end_are_late() -> None:
    states = [RankState(rank, returned=Returned()) for rank in range(2)]
    found = rank_error.timeout(states, {}, 1.0)
    assert str(found).startswith("both ranks")
    assert found.rank == 0


@pytest.mark.parametrize("seconds", [0.001, 0.01, 0.03])
def test_time_may_run_out_before_the_ranks_are_there(seconds: float) -> None:
    notebook_launcher(int, (), 1, device="cpu")  # a server is there
    with pytest.raises(RankTimeoutError, match="did not finish within"):
        notebook_launcher(time.sleep, (60,), 1, device="cpu", timeout=seconds)


def test_a_rank_that_returned_may_be_late_to_end() -> None:
    def leave_a_thread() -> None:
        import threading
        import time

        threading.Thread(target=time.sleep, args=(60,)).start()

    with pytest.raises(RankTimeoutError) as late:
        notebook_launcher(leave_a_thread, (), 1, device="cpu", timeout=1.0)
    assert late.value.rank == 0
