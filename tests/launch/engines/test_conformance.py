"""What every engine does, and what an engine does whose ranks are processes."""

import ctypes
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from notebook_accel.errors import LaunchError, PayloadError
from notebook_accel.events import (
    Disconnect,
    Exited,
    Failed,
    Heartbeat,
    Hello,
    Phase,
    PhaseChanged,
    Returned,
    Shown,
    Stacks,
    StacksRequested,
)
from notebook_accel.launch import engines
from notebook_accel.launch.engines.contract import Engine
from notebook_accel.launch.server import abandoned
from tests.launch.engines import calls
from tests.launch.engines.driver import Group, run
from tests.launch.own_processes import alive, descriptors, outlive
from tests.live_notebook import wait_until

pytestmark = pytest.mark.early

DONE = ["hello", "loading", "running", "returned"]
FAILED = ["hello", "loading", "running", "failed"]


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.nightly if name == "spawn" else ())  # a further start method of a server
        for name in engines.ENGINES
        if name != "xla"  # tests/tpu runs all this for that one
    ]
)
def engine(request: pytest.FixtureRequest) -> Engine:
    return engines.get(request.param)


@pytest.fixture
def isolated(engine: Engine) -> Engine:
    if not engine.isolated:
        pytest.skip(f"ranks of the {engine.name} engine are no processes")
    return engine


@pytest.fixture
def several(engine: Engine) -> Engine:
    """An engine that can start groups of three."""
    if engine.max_ranks is not None and engine.max_ranks < 3:
        pytest.skip(f"the {engine.name} engine starts at most {engine.max_ranks} rank")
    return engine


# A call


def test_an_engine_is_what_the_table_says(engine: Engine) -> None:
    assert engines.get(engine.name) is engine
    assert engine.max_ranks is None or engine.max_ranks >= 1


@pytest.mark.smoke
def test_a_call_returns(engine: Engine) -> None:
    with Group(engine) as group:
        assert group.run(calls.add, 2, 3) == [5]
        assert group.steps() == DONE
        exited = group.exits[0]
        assert (exited.code, exited.signal) == (0, None)
        assert time.time() - 20 < exited.at <= time.time()


def test_a_rank_says_where_it_is(engine: Engine) -> None:
    with Group(engine) as group:
        (pid,) = group.wait_for_hello()
        assert (pid == os.getpid()) is not engine.isolated
        assert group.of(0, Hello)[0].host == os.uname().nodename
        group.end()


def test_each_rank_has_its_number(several: Engine) -> None:
    assert run(several, calls.rank, size=3) == [0, 1, 2]


def test_a_rank_runs_one_call_after_the_other(engine: Engine) -> None:
    with Group(engine) as group:
        group.call(calls.add, 1, 1)
        group.wait_for_answers()
        group.call(calls.fail, "in between")
        group.wait_for_answers()
        assert group.run(calls.add, 2, 2) == [4]
        first, later = group.steps()[: len(DONE)], group.steps()[len(DONE) :]
        assert first == DONE
        # A later call that is over at once need not tell how it began.
        assert [step for step in later if step not in DONE[1:3]] == ["failed", "returned"]


def test_a_rank_without_a_call_ends(engine: Engine) -> None:
    with Group(engine) as group:
        group.end()
        assert group.steps() == ["hello"]
        assert group.exits[0].code == 0


def test_a_rank_that_is_told_that_no_call_follows_still_answers(engine: Engine) -> None:
    with Group(engine) as group:
        group.call(time.sleep, 0.2)
        group.finish()
        group.wait_for_exits()
        assert group.steps() == DONE


def test_a_large_value_returns(engine: Engine) -> None:
    assert run(engine, calls.big, 20_000_000) == [bytes(20_000_000)]


def test_ranks_meet(engine: Engine) -> None:
    size = 2 if engine.max_ranks is None else 1
    assert run(engine, calls.reduce, size=size) == [sum(range(1, size + 1))] * size


def test_a_group_that_is_too_large_is_refused(engine: Engine) -> None:
    if engine.max_ranks is None:
        pytest.skip(f"the {engine.name} engine has no limit")
    before = descriptors()
    with pytest.raises(LaunchError, match="num_processes=1"):
        Group(engine, engine.max_ranks + 1)
    wait_until(lambda: descriptors() <= before)


# How calls fail


def test_an_exception_comes_with_its_frames_and_none_of_ours(engine: Engine) -> None:
    with Group(engine) as group:
        group.call(calls.fail, "so it goes")
        group.end()
        assert group.steps() == FAILED
        failed = group.failed()
        assert group.exits[0].code == 1
    inner, outer = failed.chain
    assert (inner.type_name, inner.link) == ("KeyError", "cause")
    assert (outer.type_name, outer.text, outer.link) == ("ValueError", "ValueError: so it goes", "")
    assert [(frame.filename, frame.name, frame.line) for frame in outer.frames] == [
        (calls.__file__, "fail", "raise ValueError(text) from error")
    ]
    assert failed.stage == "running"
    assert len(failed.exception) == 1


def test_one_rank_fails_alone(several: Engine) -> None:
    with Group(several, 3) as group:
        group.call(calls.fail_on, 1)
        group.end()
        assert [group.steps(rank)[-1] for rank in range(3)] == ["returned", "failed", "returned"]
        assert [group.exits[rank].code for rank in range(3)] == [0, 1, 0]


@pytest.mark.parametrize(("given", "code"), [(3, 3), ("a reason", 1)])
def test_leaving_with_a_status_is_a_failure(engine: Engine, given: object, code: int) -> None:
    with Group(engine) as group:
        group.call(calls.leave, given)
        group.end()
        assert group.failed().exit_code == code
        assert group.exits[0].code == 1


@pytest.mark.parametrize("given", [0, None])
def test_leaving_without_a_status_is_none(engine: Engine, given: object) -> None:
    assert run(engine, calls.leave, given) == [None]


def test_a_value_that_cannot_be_sent_fails_in_returning(isolated: Engine) -> None:
    with Group(isolated) as group:
        group.call(calls.unpicklable)
        group.end()
        assert group.failed().stage == "returning"
        assert group.failed().chain[-1].type_name == PayloadError.__name__
        assert "`result` is a generator" in group.failed().chain[-1].text


def test_no_garbage_is_looked_for_while_a_call_is_loaded(isolated: Engine) -> None:
    """Loading imports modules, and looking for garbage takes a fifth of that time."""
    assert run(isolated, calls.collects, calls.CollectsAtLoading()) == [(False, True)]


def test_a_call_that_cannot_be_loaded_fails_in_loading(isolated: Engine) -> None:
    with Group(isolated) as group:
        group.call(calls.add, 1, calls.Unloadable())
        group.end()
        assert group.steps() == ["hello", "loading", "failed"]
        assert group.failed().stage == "loading"
        assert "no number" in group.failed().chain[-1].text


@pytest.mark.parametrize("code", [0, 7])
def test_a_process_that_exits_by_itself_has_not_answered(isolated: Engine, code: int) -> None:
    with Group(isolated) as group:
        group.call(calls.vanish, code)
        group.end()
        assert not {*group.steps()} & {"returned", "failed"}
        assert (group.exits[0].code, group.exits[0].signal) == (code, None)


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_a_death_by_signal_is_told(isolated: Engine, signum: int) -> None:
    with Group(isolated) as group:
        group.call(calls.kill_itself, signum)
        group.end()
        assert (group.exits[0].code, group.exits[0].signal) == (None, signum)
        assert group.exits[0].peak_resident > 2**20


def test_a_crash_leaves_its_stack(isolated: Engine) -> None:
    with Group(isolated) as group:
        group.call(calls.crash)
        group.end()
        assert group.exits[0].signal == signal.SIGSEGV
        assert "Fatal Python error: Segmentation fault" in group.exits[0].crash
        assert "in crash" in group.exits[0].crash


# Signals


def test_an_interrupt_is_raised_in_the_function(engine: Engine) -> None:
    with Group(engine) as group:
        group.call(calls.wait)
        group.wait_for_running()
        group.ranks.signal(0, signal.SIGINT)
        group.end()
        assert group.failed().chain[-1].type_name == "KeyboardInterrupt"
        assert (group.exits[0].code, group.exits[0].signal) == (1, None)


def test_an_interrupt_may_be_caught(engine: Engine, tmp_path: Path) -> None:
    with Group(engine) as group:
        group.call(calls.wait_unless_told, str(tmp_path / "begun"))
        wait_until((tmp_path / "begun").exists)
        group.ranks.signal(0, signal.SIGINT)
        group.end()
        assert group.value(0) == "saved"


def test_an_interrupt_in_a_destructor_is_raised_in_the_function(isolated: Engine) -> None:
    with Group(isolated) as group:
        group.call(calls.wait_in_destructor)
        group.wait_for_output(b"in the destructor")
        group.ranks.signal(0, signal.SIGINT)
        group.end()
        assert group.output[0, "out"].splitlines()[-1] == b"went on"
        assert group.failed().chain[-1].type_name == "KeyboardInterrupt"


def test_a_rank_that_waits_for_one_that_has_ended_is_freed(isolated: Engine) -> None:
    def is_waiting() -> bool:
        return any(each.phase is Phase.WAITING for each in group.of(0, PhaseChanged))

    with Group(isolated, 2) as group:
        group.call(calls.meet_but_for_one)
        group.wait_for(is_waiting)
        group.ranks.signal(0, signal.SIGINT)
        group.ranks.signal(1, signal.SIGKILL)
        group.wait_for(lambda: 1 in group.exits)
        assert 0 not in group.exits
        group.ranks.close_store()
        group.end()
        assert group.failed(0).chain


def test_an_interrupt_between_calls_is_not_heard(isolated: Engine) -> None:
    def interrupt() -> None:
        group.ranks.signal(0, signal.SIGINT)
        group.ranks.signal(0, signal.SIGSTOP)  # signals come in their order
        wait_until(lambda: rank.status() == psutil.STATUS_STOPPED)
        group.ranks.signal(0, signal.SIGCONT)

    with Group(isolated) as group:
        rank = psutil.Process(group.wait_for_hello()[0])
        interrupt()
        group.call(calls.add, 1, 1)
        group.wait_for_answers()
        interrupt()
        assert group.run(calls.add, 2, 2) == [4]


def test_a_signal_reaches_one_rank(isolated: Engine) -> None:
    with Group(isolated, 2) as group:
        group.call(calls.wait)
        group.wait_for_running()
        group.ranks.signal(1, signal.SIGTERM)
        group.wait_for(lambda: group.exits)
        assert group.exits[1].signal == signal.SIGTERM
        assert alive(group.wait_for_hello()[:1])
        group.ranks.signal(0, signal.SIGKILL)
        group.wait_for_exits()
        assert group.exits[0].signal == signal.SIGKILL


def test_a_kill_is_heeded_by_the_deaf(isolated: Engine) -> None:
    with Group(isolated) as group:
        group.call(calls.wait_deaf)
        group.wait_for_output(b"deaf")
        group.ranks.signal(0, signal.SIGINT)
        group.ranks.signal(0, signal.SIGTERM)
        group.ranks.signal(0, signal.SIGKILL)
        group.wait_for_exits()
        assert group.exits[0].signal == signal.SIGKILL


def test_a_kill_ends_what_the_rank_has_started(isolated: Engine) -> None:
    with Group(isolated) as group:
        group.call(calls.leave_children)
        group.wait_for_output(b"\n")
        near, *_ = map(int, group.output[0, "out"].split())
        group.ranks.signal(0, signal.SIGKILL)
        group.wait_for_exits()
        assert not outlive([near])


def test_the_children_of_a_rank_that_dies_end_while_the_others_go_on(isolated: Engine) -> None:
    with Group(isolated, 2) as group:
        group.call(calls.die_beside_a_child)
        group.wait_for(lambda: 0 in group.exits)
        group.wait_for(lambda: group.output[0, "out"])
        assert not outlive([int(group.output[0, "out"])])
        assert 1 not in group.exits


def test_severing_leaves_the_connections_of_the_users_own_code(isolated: Engine) -> None:
    """Ranks that are spawned import torch."""
    with Group(isolated, 2) as group, socket.create_server(("127.0.0.1", 0)) as listener:
        group.call(calls.keep_connections, listener.getsockname()[1])
        group.wait_for_output(b"all are connected")
        group.ranks.send(range(2), Disconnect())
        group.end()
        assert [group.value(rank) for rank in range(2)] == [(True, False)] * 2
        for _ in range(2):
            with listener.accept()[0] as accepted:
                assert accepted.recv(100) == b"still here"


def wait_for_wait(group: Group) -> None:
    """Asks a rank where it is until it is in `calls.wait`; it may not have been entered yet."""

    def is_in_wait(answers: int) -> bool:
        group.ranks.send([0], StacksRequested(1))
        group.wait_for(lambda: len(group.of(0, Stacks)) > answers)
        main = group.of(0, Stacks)[-1].threads[0]
        return main.main and "wait" in [frame.name for frame in main.frames]

    wait_until(lambda: is_in_wait(len(group.of(0, Stacks))))


def test_a_rank_tells_its_stacks_when_it_is_asked(engine: Engine) -> None:
    with Group(engine) as group:
        group.call(calls.wait)
        group.wait_for_running()
        wait_for_wait(group)


def test_a_signal_makes_a_rank_write_its_stacks(isolated: Engine) -> None:
    with Group(isolated) as group:
        group.call(calls.wait)
        group.wait_for_running()
        wait_for_wait(group)  # not while Python code runs
        group.ranks.dump_stacks([0], 7)
        group.wait_for(lambda: any(stacks.number == 7 for stacks in group.of(0, Stacks)))
        main = group.of(0, Stacks)[-1].threads[0]
        assert main.main
        assert "wait" in [frame.name for frame in main.frames]


def test_a_signal_to_a_rank_that_has_ended_is_lost(engine: Engine) -> None:
    with Group(engine) as group:
        group.run(calls.add, 1, 1)
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            group.ranks.signal(0, signum)
    assert run(engine, calls.add, 1, 1) == [2]


def test_a_rank_that_is_paused_is_not_heard_until_it_is_resumed(isolated: Engine) -> None:
    with Group(isolated, 2) as group:
        group.wait_for_hello()
        group.ranks.pause(0)
        group.call(calls.flood, 3_000_000)
        group.wait_for(lambda: group.of(1, Returned))
        while group.turn():
            pass
        assert not group.of(0, Returned)
        assert group.output[0, "out"] == b""
        group.ranks.resume(0)
        group.end()
        assert [len(group.output[rank, "out"]) for rank in range(2)] == [3_000_001] * 2


def test_an_answer_comes_after_what_the_rank_wrote_before(isolated: Engine, tmp_path: Path) -> None:
    with Group(isolated) as group:
        group.wait_for_hello()
        group.ranks.pause(0)  # the two take different ways: let both have arrived
        group.call(calls.say, "before")
        group.call(calls.touch, str(tmp_path / "done"))
        wait_until((tmp_path / "done").exists)
        group.ranks.resume(0)
        group.wait_for_answers()
        assert group.order[0].index("written") < group.order[0].index("returned")


def test_what_a_rank_displays_keeps_its_place_among_what_it_writes(isolated: Engine) -> None:
    with Group(isolated) as group:
        group.wait_for_hello()
        group.ranks.pause(0)  # so that all of it has arrived before any is read
        group.call(calls.display_among_lines, 20)
        group.finish()
        group.wait_for_exits()
        kinds = [kind for kind in group.order[0] if kind in ("written", "shown", "cleared")]
        assert kinds == [*["written", "shown", "written", "cleared"] * 20]
        assert group.output[0, "out"] == b"before\nafter\n" * 20
        shown = [json.loads(b"".join(event.bundle))["data"]["text/html"] for event in group.of(0, Shown)]
        assert shown == [f"<b>{step}</b>" for step in range(20)]


def test_what_a_rank_wrote_before_it_died_is_heard_before_its_end(isolated: Engine) -> None:
    with Group(isolated) as group:
        group.wait_for_hello()
        group.ranks.pause(0)  # so that its end is heard first
        group.call(calls.say_and_vanish, "last words")
        group.wait_for_exits()
        assert group.output[0, "out"] == b"last words\n"
        assert group.order[0][-1] == "exited"


def test_the_end_of_a_paused_rank_is_heard_after_all_that_it_wrote(isolated: Engine) -> None:
    with Group(isolated) as group:
        group.wait_for_hello()
        group.ranks.pause(0)
        group.call(calls.speak)
        group.finish()
        group.wait_for_exits()
        assert b"printed" in group.output[0, "out"]
        assert group.of(0, Returned)


def test_an_idle_group_says_nothing(engine: Engine) -> None:
    with Group(engine, heartbeat=60.0) as group:
        group.run(calls.add, 1, 1)
        while group.turn():
            pass
        assert not group.turn()


# What ranks have


def test_output_is_captured_whoever_writes_it(isolated: Engine) -> None:
    with Group(isolated) as group:
        group.run(calls.speak)
        assert sorted(group.output[0, "out"].split(b"\n")) == sorted(
            [b"printed", b"written", b"from C", b"from a child", b"no end"]
        )
        assert group.output[0, "err"] == b"complained\nwritten too\n"


def test_a_rank_ends_once_its_threads_have(isolated: Engine) -> None:
    with Group(isolated) as group:
        group.run(calls.leave_a_thread)
        assert group.output[0, "out"] == b"the thread has ended\n"


def test_output_of_any_size_is_captured(isolated: Engine) -> None:
    with Group(isolated, 2) as group:
        group.run(calls.flood, 5_000_000)
        assert [len(group.output[rank, "out"]) for rank in range(2)] == [5_000_001] * 2


@pytest.fixture
def buffered_c_output() -> Iterator[None]:
    """C's standard output is buffered here, as in a kernel, also where PYTHONUNBUFFERED is set."""
    libc = ctypes.CDLL(None)
    stdout = ctypes.c_void_p.in_dll(libc, "__stdoutp" if sys.platform == "darwin" else "stdout")
    fully_buffered, unbuffered = 0, 2
    buffer = ctypes.create_string_buffer(4096)
    libc.setvbuf(stdout, buffer, fully_buffered, len(buffer))
    yield
    libc.setvbuf(stdout, None, unbuffered, 0)


@pytest.mark.usefixtures("buffered_c_output")
def test_output_of_a_rank_that_is_no_process_is_the_kernels(engine: Engine, capfd: pytest.CaptureFixture[str]) -> None:
    if engine.isolated:
        pytest.skip(f"ranks of the {engine.name} engine have output of their own")
    with Group(engine) as group:
        group.run(calls.speak)
        assert group.output == {(0, "out"): b"", (0, "err"): b""}
    assert "from C" in capfd.readouterr().out


def test_a_rank_has_the_environment_of_its_spec_and_no_other(isolated: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_KERNEL", "1")
    with Group(isolated, 2, environ={"OF_THE_KERNEL": None, "OF_THE_GROUP": "a=b\nc"}) as group:
        found = group.run(calls.environment)
        for own, spec in zip(found, group.spec.environments, strict=True):
            assert {name: own[name] for name in own.keys() & spec.keys()} == spec
            assert own.keys() - spec.keys() <= {"LC_CTYPE", abandoned.RANK_MARK}  # of the interpreter and the server
    (text,) = run(isolated, calls.echo_environment, environ={"OF_THE_KERNEL": None, "OF_THE_GROUP": "yes"})
    assert "OF_THE_GROUP=yes" in text
    assert "OF_THE_KERNEL" not in text


def test_an_environment_is_given_back(engine: Engine) -> None:
    before = dict(os.environ)
    assert run(engine, calls.environment, environ={"OF_THE_GROUP": "1"})[0]["OF_THE_GROUP"] == "1"
    run(engine, calls.change_environment)
    with Group(engine) as group:
        group.call(calls.fail, "no matter")
        group.end()
    assert dict(os.environ) == before


@pytest.mark.parametrize(("setting", "threads"), [("3", 3), ("2,1", 2), (None, 1), ("0", 1), ("many", 1)])
def test_a_rank_has_the_threads_that_were_set(setting: str | None, threads: int) -> None:
    engine = engines.get("forkserver")
    assert run(engine, calls.threads, environ={"OMP_NUM_THREADS": setting}) == [threads]


def test_a_rank_is_a_session_of_its_own_with_nothing_to_read(isolated: Engine) -> None:
    with Group(isolated, 2) as group:
        pids = group.wait_for_hello()
        assert group.run(calls.place) == [(pid, pid, pid, "") for pid in pids]


def test_a_rank_tells_how_much_memory_it_holds(isolated: Engine) -> None:
    with Group(isolated, heartbeat=0.02) as group:
        group.call(calls.swell, 100_000_000)
        group.wait_for(lambda: any(beat.resident > 100_000_000 for beat in group.of(0, Heartbeat)))


# Groups


def test_several_groups_live_at_once(isolated: Engine) -> None:
    groups = [Group(isolated, size) for size in (1, 2, 1)]
    try:
        for number, group in enumerate(groups):
            group.call(calls.add, number, 10)
        for number, group in reversed(list(enumerate(groups))):
            group.end()
            assert [group.value(rank) for rank in range(group.size)] == [number + 10] * group.size
    finally:
        for group in groups:
            group.close()


def test_a_group_that_ends_leaves_another_alone(isolated: Engine) -> None:
    with Group(isolated) as waiting:
        waiting.call(calls.wait)
        waiting.wait_for_running()
        with Group(isolated) as killed:
            killed.call(calls.wait)
            killed.wait_for_running()
        assert run(isolated, calls.add, 1, 1) == [2]
        assert not waiting.exits
        assert alive(waiting.wait_for_hello())


@pytest.mark.parametrize("kill", [False, True])
def test_a_launch_after_a_failure_is_as_good_as_the_first(isolated: Engine, kill: bool) -> None:
    for _ in range(2):
        with Group(isolated) as group:
            group.call(*(calls.kill_itself, signal.SIGKILL) if kill else (calls.fail, "once"))
            group.wait_for(lambda group=group: group.exits or group.of(0, Failed))
        assert run(isolated, calls.add, 1, 1) == [2]


def test_a_group_that_is_closed_while_it_runs_leaves_no_process(isolated: Engine) -> None:
    with Group(isolated, 2) as group:
        group.call(calls.leave_children)
        group.wait_for_output(b"\n")
        left = group.wait_for_hello() + [int(pid) for rank in (0, 1) for pid in group.output[rank, "out"].split()]
        assert alive(left) == left
    assert not outlive(left)


def test_what_a_rank_leaves_behind_ends_with_its_group(isolated: Engine) -> None:
    with Group(isolated) as group:
        (left,) = group.run(calls.leave_children_and_return)
    assert not outlive(left)


def test_ranks_that_part_end_by_themselves(isolated: Engine) -> None:
    with Group(isolated, 2) as group:
        pids = group.wait_for_hello()
        group.call(calls.add, 1, 1)
        group.wait_for_answers()
        group.finish()
        group.wait_for(lambda: all(group.of(rank, Exited) for rank in range(2)))
        group.ranks.expect_ends()
    assert not outlive(pids)
    assert run(isolated, calls.add, 1, 1) == [2]


def test_what_ranks_that_part_have_started_is_ended(isolated: Engine) -> None:
    with Group(isolated) as group:
        group.call(calls.leave_children_and_return)
        group.wait_for_answers()
        group.finish()
        group.wait_for(lambda: group.of(0, Exited))
        group.ranks.expect_ends()
        left = group.value(0)
    assert not outlive(left)


def test_a_group_that_is_closed_at_once_leaves_nothing(engine: Engine) -> None:
    group = Group(engine)
    group.close()
    assert run(engine, calls.add, 1, 1) == [2]
    wait_until(lambda: "notebook-accel-rank" not in [thread.name for thread in threading.enumerate()])


def test_groups_that_overlap_leave_the_environment_as_it_was(engine: Engine) -> None:
    before = dict(os.environ)
    with Group(engine) as first, Group(engine) as second:
        first.call(calls.add, 1, 1)
        second.call(calls.add, 2, 2)
        first.end()
        second.end()
        assert [first.value(0), second.value(0)] == [2, 4]
    Group(engine).close()
    assert run(engine, calls.add, 1, 1) == [2]
    wait_until(lambda: dict(os.environ) == before)


def test_a_group_that_waits_for_another_can_be_ended(engine: Engine) -> None:
    with Group(engine) as first, Group(engine) as second:
        first.call(calls.add, 1, 1)
        first.wait_for_answers()
        second.call(calls.wait)
        first.call(time.sleep, 0.2)
        first.wait_for_answers()
        second.ranks.signal(0, signal.SIGKILL)
        second.wait_for_exits()
        assert second.of(0, Returned) == []
        if not engine.isolated:  # others begin at once
            assert second.of(0, PhaseChanged) == []
        assert first.run(calls.add, 2, 2) == [4]


def is_settled(engine: Engine) -> bool:
    """Whether no successor of the server is on its way."""
    engine.warm()
    return getattr(engine, "next", None) is None


def test_descriptors_do_not_leak(engine: Engine) -> None:
    run(engine, calls.add, 1, 1)
    wait_until(lambda: is_settled(engine))
    server = getattr(engine, "server", None)
    process = server.process if server else None  # none for a successor, which is no child of ours
    held = [descriptors(), descriptors(process.pid) if process else 0]
    for number in range(20):
        with Group(engine) as group:
            if number % 5 == 0:
                assert group.run(calls.add, number, 1) == [number + 1]
            elif number % 5 == 1:
                group.call(calls.wait)
    wait_until(lambda: descriptors() <= held[0], what=lambda: f"{descriptors()} open, {held[0]} before")
    if process:
        spares = 10  # come and go
        wait_until(lambda: descriptors(process.pid) <= held[1] + spares)


def test_the_kernel_gets_no_thread_and_no_child_for_a_group(isolated: Engine) -> None:
    run(isolated, calls.add, 1, 1)
    before = set(threading.enumerate())
    with Group(isolated, 2) as group:
        group.wait_for_hello()
        assert set(threading.enumerate()) <= before
        assert not [pid for pid in group.wait_for_hello() if os.getpid() == _parent(pid)]


def _parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def test_values_are_kept_until_they_are_read(isolated: Engine) -> None:
    with Group(isolated) as group:
        group.call(calls.big, 3_000_000)
        group.wait_for(lambda: group.of(0, Returned))
        assert group.value(0) == bytes(3_000_000)


def test_the_engine_of_the_system_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(engines.VARIABLE, raising=False)
    assert engines.get() is engines.get("spawn" if sys.platform == "darwin" else "forkserver")
    monkeypatch.setenv(engines.VARIABLE, "inprocess")
    assert engines.get() is engines.get("inprocess")
