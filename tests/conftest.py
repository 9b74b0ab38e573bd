"""What all tests share."""

import gc
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from notebook_accel import rank_local
from notebook_accel.events import emit
from notebook_accel.launch.engines import base_server
from notebook_accel.launch.show.console import Terminal
from notebook_accel.launch.wire.mirrored import library_settings
from tests import shared_server

# Other work on the machine must not fail a test, and neither must a seed: run with `--hypothesis-profile=default` to
# look further.
settings.register_profile("steady", deadline=None, derandomize=True, database=None, max_examples=50)
settings.load_profile("steady")

# OpenMP's threads wait for each other in a loop, which on a busy machine costs a time slice of a core at each call of a
# small operation: training on one rank then takes five times the processor time.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Images of containers set it. A `print` is then two writes, and lines of ranks that share a pipe can mix.
os.environ.pop("PYTHONUNBUFFERED", None)

# A shell script has what it runs in the background ignore SIGINT and SIGQUIT, and so would the kernels and ranks here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)

_HERE = Path(__file__).parent
_APART = {_HERE / name for name in ("browser", "documents", "frameworks", "hosts", "slurm")}
"""Folders whose tests take minutes: they run where they are named, as by `scripts/test-browser`."""
_LONG = 10.0
"""Seconds beyond which a test's docstring says why it takes so long."""
_UNEXPLAINED = "long, without a docstring"
"""The property of such a test's report."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--nightly`."""
    parser.addoption("--nightly", action="store_true", help="run also the tests that are marked `nightly`")


def pytest_configure(config: pytest.Config) -> None:
    """Makes the place for the base server, of which the workers of pytest-xdist share one."""
    if not hasattr(config, "workerinput"):
        shared_server.begin()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends that server."""
    if not hasattr(config, "workerinput"):
        shared_server.end()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out what runs apart, unless it is named."""
    named = [Path(argument.partition("::")[0]).resolve() for argument in config.args]
    apart = collection_path in _APART and not any(path.is_relative_to(collection_path) for path in named)
    return True if apart else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leaves what collection makes to no garbage collector: modules and tests, which last as long as the process."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def jobs_are_recorded_apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What the tests launch is none of the user's jobs."""
    state = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NOTEBOOK_ACCEL_STATE", str(state))
        yield state


@pytest.fixture(scope="session", autouse=True)
def nobodys_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test is to find what whoever runs it has configured; kernels and commands inherit this."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("settings")))
        for name in [name for name in os.environ if name.startswith(("ACCELERATE_", "FSDP_"))]:
            patch.delenv(name)
        yield


@pytest.fixture(scope="session", autouse=True)
def servers_are_not_shared() -> Iterator[None]:
    """No test is to use, or to leave behind, the base server of whoever runs it.

    Kernels and commands share one of the run's own (`tests/shared_server.py`).
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(base_server.VARIABLE, "0")
        yield


@pytest.fixture(scope="session", autouse=True)
def launches_preload_nothing() -> Iterator[None]:
    """A script that launches several times has its imports preloaded, but no launch here needs what pytest imports."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Terminal, "preloads_after", None)
        yield


@pytest.fixture(scope="session", autouse=True)
def ranks_keep_their_warning_filters() -> Iterator[None]:
    """That warnings are errors is for this process. Kernels and commands mirror their own filters."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(library_settings.SETTINGS, "warning filters")
        yield


@pytest.fixture(autouse=True)
def own_rank_state() -> Iterator[None]:
    """What a test that trains in this process leaves, such as the clock of its steps, is none of the next one's.

    Nor is what a rank on a thread has set, whose listener is there until it has ended, perhaps after its test.
    """
    space = rank_local.space()
    before = {name: value for name, value in space.items() if not name.startswith(emit.__module__)}
    space.clear()
    space.update(before)
    yield
    space.clear()
    space.update(before)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts the files that are marked `early` first, and leaves out what is `nightly`, unless it is asked for or named.

    Raises:
        pytest.UsageError: A test is named after an address, so that two workers would not agree on its name.
    """
    if unstable := next((item.nodeid for item in items if " at 0x" in item.nodeid), None):
        raise pytest.UsageError(f"give this test ids without addresses: {unstable}")
    if not config.getoption("nightly") and not any("::" in argument for argument in config.args):
        left_out = [item for item in items if item.get_closest_marker("nightly")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    early = {item.path for item in items if item.get_closest_marker("early")}
    items.sort(key=lambda item: item.path not in early)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Notes a long test that does not say why it is long."""
    report = yield
    if call.when == "call" and call.duration > _LONG and not getattr(getattr(item, "obj", None), "__doc__", None):
        report.user_properties.append((_UNEXPLAINED, round(call.duration, 1)))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Names those."""
    found = {
        report.nodeid: seconds
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, seconds in getattr(report, "user_properties", ())
        if name == _UNEXPLAINED
    }
    if found:
        terminalreporter.section(f"over {_LONG:.0f} s, and the docstring does not say why")
        for nodeid, seconds in found.items():
            terminalreporter.line(f"{seconds:.1f} s  {nodeid}")
