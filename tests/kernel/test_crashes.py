"""A table of ways to crash: the error names the rank, the cell's line and the cause, and nothing is left."""

import re
import sys
import textwrap
import time
from dataclasses import dataclass

import pytest

from tests.kernel.conftest import GONE_WITHIN, STOPPED_WITHIN, nothing_is_left
from tests.live_notebook import Notebook

OURS = re.compile(r"notebook_accel/|IPython/|ipykernel/|<frozen runpy>")


@dataclass(frozen=True)
class Crash:
    """A body of a function that fails, and how its error reads."""

    name: str
    body: str
    first_line: str
    """A pattern for the first line of the message."""
    cause: str | None
    """The name of the type of the `__cause__`."""
    also: tuple[str, ...] = ()
    """What the rest of the message has."""
    place: str | None = None
    """The source line that is shown; by default the one marked with `# here`."""


CRASHES = [
    Crash(
        "one rank raises while the others wait in a collective",
        """
        rank = join()
        if rank == 1:
            raise ValueError("no such file")  # here
        dist.barrier()
        """,
        r"rank 1 of 2 raised ValueError: no such file",
        "ValueError",
    ),
    Crash(
        "all ranks raise alike",
        """
        raise LookupError("nothing")  # here
        """,
        r"both ranks raised LookupError: nothing",
        "LookupError",
    ),
    Crash(
        "ranks raise differently",
        """
        raise LookupError(f"nothing on {os.environ['RANK']}")  # here
        """,
        r"rank [01] of 2 raised LookupError: nothing on [01]",
        "LookupError",
        also=("nothing on 0", "nothing on 1"),
    ),
    Crash(
        "sys.exit with a status",
        """
        sys.exit(3)  # here
        """,
        r"both ranks exited with status 3 \(sys\.exit\)",
        "SystemExit",
    ),
    Crash(
        "a parser that reads the kernel's arguments",
        """
        import argparse
        argparse.ArgumentParser().parse_args()  # here
        """,
        r"both ranks exited with status 2 \(sys\.exit\)",
        "SystemExit",
        also=("reads those of the notebook's kernel: -f ", "Write parse_args([]) to use the defaults"),
    ),
    Crash(
        "os._exit with a status",
        """
        os._exit(3)
        """,
        r"both ranks ended with status 3 before the function returned",
        None,
    ),
    Crash(
        "os._exit that looks like success",
        """
        os._exit(0)
        """,
        r"both ranks ended with status 0 before the function returned",
        None,
    ),
    Crash(
        "a crash in C",
        """
        import ctypes
        ctypes.string_at(0)  # here
        """,
        r"both ranks were killed by SIGSEGV",
        None,
        also=("MB at ",),
    ),
    Crash(
        "a kill from outside",
        """
        rank = join()
        if rank == 0:
            kept = []
            for _ in range(5):
                kept.append(bytearray(30 * 2**20))
                time.sleep(0.15)
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()
        """,
        r"rank 0 of 2 was killed by SIGKILL",
        None,
        also=("MB at ", "Its memory over "),
    ),
    Crash(
        "memory that is not granted",
        """
        import resource
        kept = [torch.ones(2**18) for _ in range(20)]
        resource.setrlimit(resource.RLIMIT_AS, (2**36, 2**36))
        bytearray(2**37)  # here
        """,
        r"both ranks raised MemoryError",
        "MemoryError",
        also=(
            "The largest tensors and arrays were:",
            "20 MB  kept: 20 tensors and arrays, assigned at In[",
            ": kept = [torch.ones(2**18) for _ in range(20)]",
            "What helps: fewer ranks",
        ),
    ),
    Crash(
        "a tensor that is too large",
        """
        weights = torch.ones(2**19)
        torch.empty(2**48)  # here
        """,
        r"both ranks raised RuntimeError: .*can't allocate memory",
        "RuntimeError",
        also=("2 MB  weights: float32 [524288], assigned at In[", "What helps: fewer ranks"),
    ),
    Crash(
        "an exception that can't be pickled",
        """
        class Unpicklable(Exception):
            def __reduce__(self):
                raise TypeError("not today")
        raise Unpicklable("still told")  # here
        """,
        r"both ranks raised .*Unpicklable: still told",
        "RuntimeError",
    ),
    Crash(
        "an exception whose class takes other arguments",
        """
        raise TwoArguments("first", "second")  # here
        """,
        r"both ranks raised (__main__\.)?TwoArguments: first and second",
        "TwoArguments",
    ),
    Crash(
        "an exception with notes",
        """
        error = ValueError("bad")
        error.add_note("in batch 7")
        raise error  # here
        """,
        r"both ranks raised ValueError: bad",
        "ValueError",
        also=("in batch 7",),
    ),
    Crash(
        "a chain of exceptions",
        """
        try:
            {}["batch"]
        except KeyError as missing:
            raise ValueError("no batch") from missing  # here
        """,
        r"both ranks raised ValueError: no batch",
        "ValueError",
        also=("KeyError: 'batch'", '{}["batch"]', "direct cause"),
    ),
    Crash(
        "an exception while handling another",
        """
        try:
            {}["batch"]
        except KeyError:
            raise ValueError("no batch")  # here
        """,
        r"both ranks raised ValueError: no batch",
        "ValueError",
        also=("KeyError: 'batch'", "During handling"),
    ),
    Crash(
        "an exception group",
        """
        raise ExceptionGroup("several", [ValueError("one"), KeyError("two")])  # here
        """,
        r"both ranks raised ExceptionGroup: several",
        "ExceptionGroup",
        also=("ValueError: one", "KeyError: 'two'"),
    ),
    Crash(
        "a KeyboardInterrupt of its own",
        """
        raise KeyboardInterrupt("by hand")  # here
        """,
        r"both ranks raised KeyboardInterrupt: by hand",
        "KeyboardInterrupt",
    ),
    Crash(
        "an error deep below other functions of the notebook",
        """
        outer()
        """,
        r"both ranks raised ZeroDivisionError",
        "ZeroDivisionError",
        also=("in outer", "in inner", "return 1 / 0"),
        place="return 1 / 0",
    ),
    Crash(
        "an error inside a library",
        """
        torch.ones(2) @ torch.ones(3)  # here
        """,
        r"both ranks raised RuntimeError: .*inconsistent",
        "RuntimeError",
    ),
    Crash(
        "endless recursion",
        """
        def deeper():
            return deeper()
        deeper()  # here
        """,
        r"both ranks raised RecursionError",
        "RecursionError",
    ),
]


@pytest.fixture
def prepared(notebook: Notebook) -> Notebook:
    notebook.check("""
    class OwnError(Exception):
        pass

    class TwoArguments(Exception):
        def __init__(self, first, second):
            super().__init__(f"{first} and {second}")

    def inner():
        return 1 / 0

    def outer():
        return inner()
    """)
    return notebook


NEW_IN_3_11 = ("an exception with notes", "an exception group")


@pytest.mark.parametrize("crash", CRASHES, ids=lambda crash: crash.name)
def test_the_error_tells_what_happened_where_and_why(prepared: Notebook, crash: Crash):
    if sys.version_info < (3, 11) and crash.name in NEW_IN_3_11:
        pytest.skip("Python 3.10 has neither notes nor exception groups")
    prepared.check(_function("crashing", crash.body))
    cell = prepared.run("""
    try:
        notebook_launcher(crashing, num_processes=2)
    except RankError as caught:
        error = caught
        raise
    """)
    assert cell.error == "RankError", cell
    message = cell.traceback.removeprefix("RankError: ")
    assert re.match(crash.first_line, message), message
    for text in crash.also:
        assert text in message
    shown = crash.place or next((line.strip() for line in crash.body.splitlines() if "# here" in line), None)
    if shown is not None:
        assert re.search(r"In\[\d+\], line \d+, in ", message), message
        assert re.search(rf"--> +\d+ +{re.escape(shown)}", message), message
    assert not OURS.search(message)
    assert len(message.splitlines()) < 60
    expected = "NoneType" if crash.cause is None else crash.cause
    assert prepared.value("type(error.__cause__).__name__") == expected
    assert cell.seconds < GONE_WITHIN
    nothing_is_left(prepared)


def _function(name: str, body: str) -> str:
    return f"def {name}():\n" + textwrap.indent(textwrap.dedent(body).strip(), "    ")


@pytest.mark.smoke
def test_the_cause_is_an_instance_of_the_notebooks_own_class(prepared: Notebook):
    prepared.check("""
    class Careful(Exception):
        def __init__(self, value, unit):
            super().__init__(f"{value} {unit}")
            self.value = value
        def doubled(self):
            return 2 * self.value

    before = dict(vars(Careful))

    def fail():
        raise Careful(int(os.environ["RANK"]) + 20, "MB")

    try:
        notebook_launcher(fail, num_processes=2)
    except RankError as error:
        cause, rank = error.__cause__, error.rank
    """)
    assert prepared.value("isinstance(cause, Careful), type(cause) is Careful") == (True, True)
    assert prepared.value("cause.doubled() == 2 * (rank + 20)")
    changed = "[name for name, value in vars(Careful).items() if before.get(name) is not value]"
    assert prepared.value(changed) == []


def test_an_error_while_unpickling_is_told_as_such(prepared: Notebook):
    prepared.check("""
    class Fragile:
        def __init__(self):
            self.size = 3
        def __setstate__(self, state):
            raise OSError("the archive is gone")

    fragile = Fragile()

    def use():
        return fragile.size
    """)
    cell = prepared.run("notebook_launcher(use, num_processes=2)")
    assert cell.error == "RankError"
    assert "both ranks could not unpickle the function or its arguments: OSError: the archive is gone" in cell.traceback
    assert "--> " in cell.traceback
    assert 'raise OSError("the archive is gone")' in cell.traceback
    assert not OURS.search(cell.traceback)
    assert "pickle.py" not in cell.traceback


def test_an_error_while_returning_is_told_as_such(prepared: Notebook):
    cell = prepared.run("notebook_launcher(threading.Lock, num_processes=2)")
    assert cell.error == "RankError"
    assert re.match(r"RankError: both ranks returned a value that can't be sent back", cell.traceback), cell.traceback
    assert "lock" in cell.traceback
    assert not OURS.search(cell.traceback)


@pytest.mark.clock
def test_the_other_ranks_are_stopped_although_they_ignore_signals(prepared: Notebook):
    prepared.check("""
    def stubborn():
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, signal.SIG_IGN)
        if join() == 0:
            raise ValueError("one is enough")
        while True:
            signal.pause()
    """)
    began = time.monotonic()
    cell = prepared.run("notebook_launcher(stubborn, num_processes=3)")
    assert "rank 0 of 3 raised ValueError: one is enough" in cell.traceback
    assert "anks 1-2 were stopped" in cell.traceback
    assert time.monotonic() - began < STOPPED_WITHIN
    nothing_is_left(prepared)


def test_the_cause_comes_first_and_lost_connections_after_it(prepared: Notebook):
    """Ranks whose connection breaks often say so before the rank that has really failed is known to be dead."""
    prepared.check("""
    def die():
        rank = join()
        dist.barrier()
        if rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        for _ in range(1000):
            dist.all_reduce(torch.ones(10))
    """)
    for _ in range(3):
        cell = prepared.run("notebook_launcher(die, num_processes=3)")
        assert cell.traceback.startswith("RankError: rank 2 of 3 was killed by SIGKILL"), cell.traceback


TIMEOUTS = {
    "in Python": ("time.sleep(600)  # here", "time.sleep(600)"),
    "in a loop": ("while True: pass  # here", "while True: pass"),
    "in a C call that no signal ends": (
        """
        import ctypes
        libc = ctypes.CDLL(None)
        mutex = ctypes.create_string_buffer(64)
        libc.pthread_mutex_lock(mutex)
        libc.pthread_mutex_lock(mutex)  # here
        """,
        "libc.pthread_mutex_lock(mutex)  # here",
    ),
    "in a collective": (
        """
        rank = join()
        if rank == 0:
            time.sleep(600)
        dist.barrier()  # here
        """,
        "dist.barrier()  # here",
    ),
}


@pytest.mark.clock
@pytest.mark.parametrize("name", TIMEOUTS)
def test_a_hang_ends_at_the_timeout_and_shows_where_each_rank_was(prepared: Notebook, name: str):
    body, shown = TIMEOUTS[name]
    prepared.check(_function("hang", body))
    cell = prepared.run("notebook_launcher(hang, num_processes=2, timeout=0.7)")
    assert cell.error == "RankTimeoutError"
    assert "both ranks did not finish within 0.7 s" in cell.traceback
    assert re.search(rf"--> +\d+ +{re.escape(shown)}", cell.traceback), cell.traceback
    assert not OURS.search(cell.traceback)
    assert cell.seconds < 0.7 + STOPPED_WITHIN
    nothing_is_left(prepared)


@pytest.mark.clock  # the ranks are to have begun when the time is over
def test_a_timeout_shows_ranks_in_different_places_apart(prepared: Notebook):
    prepared.check("""
    def hang():
        if os.environ["RANK"] == "1":
            time.sleep(601)
        time.sleep(600)
    """)
    cell = prepared.run("notebook_launcher(hang, num_processes=3, timeout=0.5)")
    assert "all 3 ranks did not finish" in cell.traceback
    parts = cell.traceback.split("\n\n")
    (alone,) = [part for part in parts if part.startswith("Rank 1 was here:")]
    assert re.search(r"--> +\d+ +time\.sleep\(601\)", alone)
    (others,) = [part for part in parts if part.startswith("Ranks 0,2 were here:")]
    assert re.search(r"--> +\d+ +time\.sleep\(600\)", others)


def test_a_timeout_is_a_timeout_error_and_a_rank_error(prepared: Notebook):
    prepared.check("""
    try:
        notebook_launcher(time.sleep, (600,), num_processes=1, timeout=0.2)
    except TimeoutError as caught:
        error = caught
    """)
    assert prepared.value("isinstance(error, RankError), error.rank") == (True, 0)


@pytest.mark.clock  # the ranks are to have begun when the time is over
def test_only_the_ranks_that_hang_are_said_to(prepared: Notebook):
    prepared.check("""
    def hang():
        if os.environ["RANK"] == "1":
            time.sleep(600)
    """)
    cell = prepared.run("notebook_launcher(hang, num_processes=2, timeout=0.5)")
    assert "rank 1 of 2 did not finish within 0.5 s" in cell.traceback
