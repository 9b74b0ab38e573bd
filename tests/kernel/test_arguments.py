"""Each argument of the launcher does what it says, and a wrong one is refused by its name."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.free_ports import free_port
from tests.live_notebook import Notebook, wait_until


@contextmanager
def taken_port(port: int = 0) -> Iterator[int]:
    """A port on which someone else listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        yield taken.getsockname()[1]


def test_the_defaults_say_how_many_processes_they_start(notebook: Notebook):
    cell = notebook.check("notebook_launcher(lambda: int(os.environ['WORLD_SIZE']))")
    match = re.search(r"using (\d+) CPU process(?:es)? \(change with num_processes\)", cell.text)
    assert match is not None, cell
    assert cell.stderr == ""
    count = int(match[1])
    assert 1 <= count <= 4
    assert cell.value == str([count] * count)


def test_nothing_is_said_where_nothing_was_decided(notebook: Notebook):
    cell = notebook.check("notebook_launcher(int, num_processes=2)")
    assert (cell.stdout, cell.stderr, cell.value) == ("", "", "[0, 0]")


def test_arguments_and_keyword_arguments_arrive(notebook: Notebook):
    notebook.check("def f(*args, **kwargs): return args, kwargs")
    assert notebook.value("notebook_launcher(f, (1, 'two'), 1, kwargs={'three': [3]})") == [
        ((1, "two"), {"three": [3]})
    ]
    assert notebook.value("notebook_launcher(f, [1], num_processes=1)") == [((1,), {})]


def test_positions_of_arguments_are_those_of_the_peer(notebook: Notebook):
    assert notebook.value("""
    import inspect
    import accelerate
    theirs = list(inspect.signature(accelerate.notebook_launcher).parameters)
    ours = list(inspect.signature(notebook_launcher).parameters)
    [name for name in theirs if name in ours] == ours[:len([n for n in theirs if n in ours])], theirs[:4] == ours[:4]
    """) == (True, True)


def test_variables_for_the_ranks_are_theirs_alone(notebook: Notebook):
    notebook.check("def f(): return os.environ['OWN'], os.environ['NUMBER']")
    assert notebook.value("notebook_launcher(f, num_processes=2, env={'OWN': 'x', 'NUMBER': 3})") == [("x", "3")] * 2
    assert notebook.value("'OWN' in os.environ") is False


@pytest.mark.parametrize("launch", ["notebook_launcher(f, num_processes=2, device='cpu')", "debug_launcher(f)"])
def test_ranks_run_on_the_cpu_when_told_so(notebook: Notebook, launch: str):
    notebook.check("def f(): return torch.cuda.is_available(), os.environ['WORLD_SIZE'], torch.ones(1).device.type")
    assert notebook.value(launch) == [(False, "2", "cpu")] * 2


def test_the_debug_launcher_takes_a_number_of_processes(notebook: Notebook):
    assert notebook.value("debug_launcher(lambda x: x, (5,), num_processes=3)") == [5, 5, 5]


def test_ranks_find_the_standard_environment(notebook: Notebook):
    notebook.check("""
    def f():
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "TORCHELASTIC_RESTART_COUNT")
        return [int(os.environ[name]) for name in names], os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]) > 0
    """)
    assert notebook.value("notebook_launcher(f, num_processes=2)") == [
        ([rank, rank, 2, 2, 0, 0], "127.0.0.1", True) for rank in (0, 1)
    ]


# Where the ranks meet


@pytest.mark.parametrize("argument", ["use_port='{}'", "rdzv_endpoint='127.0.0.1:{}'"])
def test_a_port_that_is_given_is_used(notebook: Notebook, argument: str):
    port = free_port()
    notebook.check("def f(): return join(), int(os.environ['MASTER_PORT'])")
    assert notebook.value(f"notebook_launcher(f, num_processes=2, {argument.format(port)})") == [(0, port), (1, port)]


def test_the_same_port_can_be_used_again_at_once(notebook: Notebook):
    port = free_port()
    assert (
        notebook.value(f"[notebook_launcher(join, num_processes=2, use_port={port}) for _ in range(5)]") == [[0, 1]] * 5
    )


def test_a_port_that_someone_else_uses_is_refused_clearly(notebook: Notebook):
    with taken_port() as port:
        cell = notebook.run(f"notebook_launcher(join, num_processes=2, use_port={port})")
    assert cell.error == "LaunchError"
    assert f"127.0.0.1:{port}" in cell.error_text
    assert "choose another use_port" in cell.error_text
    assert "notebook_accel/" not in cell.traceback


def test_it_does_not_matter_who_uses_the_default_port(notebook: Notebook):
    with suppress(OSError), taken_port(29500):
        assert notebook.value("notebook_launcher(join, num_processes=2)") == [0, 1]
    assert notebook.value("notebook_launcher(join, num_processes=2, use_port='29500')") == [0, 1]


# Restarts


def test_a_failed_group_is_started_again_until_it_succeeds(notebook: Notebook, tmp_path: Path):
    notebook.check(f"""
    def flaky():
        rank = join()
        attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        with open(f"{tmp_path}/{{rank}}", "a") as file:
            file.write("x")
        with open(f"{tmp_path}/{{rank}}") as file:
            attempts = len(file.read())
        dist.barrier()
        if rank == 1 and attempts < 3:
            raise ValueError(f"failure {{attempts}}")
        dist.barrier()
        return attempts, attempt, os.environ["TORCHELASTIC_MAX_RESTARTS"]
    """)
    cell = notebook.check("results = notebook_launcher(flaky, num_processes=2, max_restarts=4)", timeout=30)
    assert notebook.value("results") == [(3, 2, "4"), (3, 2, "4")]
    told = cell.stderr.splitlines()
    assert len(told) == 2
    assert "rank 1 of 2 raised ValueError: failure 1; starting again (attempt 2 of 5)" in told[0]
    assert "rank 1 of 2 raised ValueError: failure 2; starting again (attempt 3 of 5)" in told[1]


def test_after_the_last_attempt_its_error_is_raised(notebook: Notebook):
    notebook.check("def fail(): raise ValueError('attempt ' + os.environ['TORCHELASTIC_RESTART_COUNT'])")
    cell = notebook.run("notebook_launcher(fail, num_processes=2, max_restarts=2)")
    assert cell.error == "RankError"
    assert cell.traceback.startswith("RankError: both ranks raised ValueError: attempt 2")
    assert cell.stderr.count("starting again") == 2


def test_a_killed_group_is_started_again(notebook: Notebook):
    notebook.check("""
    def die_once():
        rank = join()
        if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()
        return rank
    """)
    cell = notebook.check("notebook_launcher(die_once, num_processes=2, max_restarts=1)")
    assert cell.value == "[0, 1]"
    assert "killed by SIGKILL" in cell.stderr


def test_launch_share_one_timeout(notebook: Notebook):
    notebook.check("def slow_failure():\n    time.sleep(0.3)\n    raise ValueError")
    cell = notebook.run("notebook_launcher(slow_failure, num_processes=2, max_restarts=200, timeout=1)")
    assert cell.error == "RankTimeoutError"
    assert cell.seconds < 20


# Signs of life


def test_the_monitor_interval_is_that_of_the_signs_of_life(notebook: Notebook, tmp_path: Path):
    """Resident memory is told with each sign of life, so its growth is soon known with a short interval only."""
    notebook.check(f"""
    def wait():
        kept = b""
        for name, more in ("grow", 2**26), ("done", 0):
            wait_for("{tmp_path}/" + name)
            kept += bytes([1]) * more

    often = notebook_launcher(wait, num_processes=1, monitor_interval=0.01, block=False)
    seldom = notebook_launcher(wait, num_processes=1, monitor_interval=3600, block=False)
    known = lambda: [job.ranks[0].resident for job in (often, seldom)]
    """)
    wait_until(lambda: all(notebook.value("known()")))
    before = notebook.value("known()")
    (tmp_path / "grow").touch()
    wait_until(lambda: notebook.value("known()")[0] > before[0] + 2**25)
    assert notebook.value("known()")[1] == before[1]
    (tmp_path / "done").touch()
    assert notebook.value("often.result(60), seldom.result(5)") == (None, None)


# The peer in a rank


@pytest.mark.parametrize(("precision", "dtype"), [("no", "torch.float32"), ("bf16", "torch.bfloat16")])
def test_the_peer_trains_in_the_ranks_with_the_precision_asked_for(notebook: Notebook, precision: str, dtype: str):
    notebook.check("""
    import accelerate

    def train():
        accelerator = accelerate.Accelerator()
        layer = torch.nn.Linear(4, 1)
        model, data = torch.nn.Sequential(layer), torch.utils.data.DataLoader(torch.ones(8, 4), batch_size=2)
        computed = []
        layer.register_forward_hook(lambda module, inputs, output: computed.append(str(output.dtype)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer, data = accelerator.prepare(model, optimizer, data)
        steps = 0
        for batch in data:
            loss = model(batch).float().pow(2).mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
        weights = accelerator.gather(next(model.parameters()).detach())
        same = torch.equal(weights[:1], weights[1:])
        kind = str(accelerator.distributed_type)
        return accelerator.mixed_precision, computed[0], kind, accelerator.num_processes, steps, same
    """)
    notebook.check(f"results = notebook_launcher(train, num_processes=2, mixed_precision={precision!r}, device='cpu')")
    assert notebook.value("results") == [(precision, dtype, "DistributedType.MULTI_CPU", 2, 2, True)] * 2


# What is refused

REFUSED = [
    ("num_processes=0", "num_processes"),
    ("mixed_precision='fp16', device='cpu'", "mixed_precision"),
    ("rdzv_endpoint='127.0.0.1:1234', use_port=1235", "rdzv_endpoint"),
    ("gpus=[0], device='cpu'", "gpus"),
    ("args='ab'", "args"),
]


@pytest.mark.parametrize(("argument", "name"), REFUSED, ids=[argument for argument, _ in REFUSED])
def test_a_wrong_argument_is_refused_by_its_name(notebook: Notebook, argument: str, name: str):
    cell = notebook.run(f"notebook_launcher(int, {argument})")
    assert cell.error == "ConfigurationError", cell
    assert re.search(rf"\b{name}\b", cell.error_text), cell.error_text
    assert "notebook_accel/" not in cell.traceback
    assert len(cell.traceback.splitlines()) <= 4


def test_what_a_function_returned_is_not_a_function(notebook: Notebook):
    cell = notebook.run("notebook_launcher(int(), num_processes=2)")
    assert cell.error == "ConfigurationError"
    assert "the first argument must be a function" in cell.error_text


def test_devices_that_are_not_there_are_refused(notebook: Notebook):
    cell = notebook.run("notebook_launcher(int, device='cuda')")
    if cell.error is None:
        pytest.skip("this machine has a GPU")
    assert cell.error == "HardwareError"
    assert "device='cpu'" in cell.error_text


def test_an_argument_that_is_not_known_is_refused(notebook: Notebook):
    cell = notebook.run("notebook_launcher(int, num_procs=2)")
    assert (cell.error, "num_procs" in cell.error_text) == ("UnknownArgumentError", True)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [("", "missing a required argument: 'x'"), ("(1, 2), ", "too many positional arguments"),
     ("kwargs={'y': 1}, ", "missing a required argument: 'x'")],
)  # fmt: skip
def test_arguments_that_do_not_fit_the_function_are_refused(notebook: Notebook, arguments: str, problem: str):
    notebook.check("def one(x): return x")
    cell = notebook.run(f"notebook_launcher(one, {arguments}num_processes=2)")
    expected = f"one() can't be called with the args= and kwargs= of this launch: {problem}. Its parameters are one(x)"
    assert (cell.error, cell.error_text) == ("ConfigurationError", expected)


def test_the_arguments_that_a_decorator_adds_are_not_missing(notebook: Notebook):
    notebook.check("""
        import functools

        def with_two(function):
            return functools.wraps(function)(lambda *args: function(2, *args))

        @with_two
        def add(one, other): return one + other
    """)
    assert notebook.value("notebook_launcher(add, (1,), num_processes=2)") == [3, 3]


def test_an_error_without_a_line_of_the_user_is_not_told_twice(notebook: Notebook):
    cell = notebook.run("notebook_launcher(int, ('x',), num_processes=2)")
    assert cell.traceback.count("invalid literal for int() with base 10: 'x'") == 1
