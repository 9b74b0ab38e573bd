"""A launch works whatever the kernel has done before."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import psutil
import pytest

from tests.kernel.conftest import GONE_WITHIN, nothing_is_left, wait_for_preloading
from tests.live_notebook import OWN_SERVER, UNTRAINED, Cell, Notebook, wait_until

pytestmark = pytest.mark.early

TRAIN = """
def train():
    rank = join()
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(
        torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)
    ))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x = torch.randn(256, 16, generator=torch.Generator().manual_seed(rank))
    y = x.sum(1, keepdim=True)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = (model(x) - y).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses[0] > 2 * losses[-1], [p.sum().item() for p in model.parameters()]
"""


def test_ranks_train_after_work_on_all_threads_of_the_kernel(notebook: Notebook):
    notebook.check(TRAIN)
    notebook.check("""
    threads = torch.get_num_threads()
    torch.set_num_threads(max(2, os.cpu_count()))
    x = torch.randn(1000, 1000)
    total = (x @ x).sum()
    (np.ones((1000, 1000)) @ np.ones((1000, 1000))).sum()
    """)
    first, second = notebook.value("notebook_launcher(train, num_processes=2)")
    notebook.check("torch.set_num_threads(threads)")
    assert first[0]
    assert second[0]
    assert first[1] == second[1], "the ranks have not the same weights"


def test_ranks_use_the_threads_that_are_theirs(notebook: Notebook):
    assert notebook.value("""
    def f():
        return torch.get_num_threads() == int(os.environ["OMP_NUM_THREADS"])
    notebook_launcher(f, num_processes=2)
    """) == [True, True]


def test_a_launch_works_after_one_that_failed(notebook: Notebook):
    notebook.check("def fail(): raise ValueError\ndef die(): os.kill(os.getpid(), 9)")
    for failing in ("fail", "die"):
        assert notebook.run(f"notebook_launcher({failing}, num_processes=2)").error == "RankError"
        assert notebook.value("notebook_launcher(join, num_processes=2)") == [0, 1]


def test_a_launch_works_after_one_that_was_interrupted(notebook: Notebook):
    cell = start_waiting(notebook)
    notebook.interrupt()
    assert notebook.finish(cell).error == "KeyboardInterrupt"
    assert notebook.value("notebook_launcher(join, num_processes=2)") == [0, 1]


def test_a_launch_works_after_the_server_was_killed(notebook: Notebook):
    killed: set[psutil.Process] = set()

    def all_are_dead() -> bool:
        alive = notebook.servers()  # one may just have forked another
        killed.update(alive)
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return not alive and all(map(has_ended, killed))

    wait_until(all_are_dead, GONE_WITHIN)
    assert notebook.value("notebook_launcher(join, num_processes=2)") == [0, 1]


def has_ended(process: psutil.Process) -> bool:
    """Whether it has closed all that it had open; its parent may not have asked for its status yet."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_killing_the_server_during_a_launch_ends_it_with_an_error(notebook: Notebook):
    cell = start_waiting(notebook)
    rank = notebook.launched()[0]
    rank.parent().kill()
    notebook.finish(cell)
    assert cell.error == "LaunchError", cell
    assert "the process that starts the ranks has ended" in cell.error_text
    nothing_is_left(notebook)
    assert notebook.value("notebook_launcher(join, num_processes=2)") == [0, 1]


def test_killing_the_store_of_a_launch_does_not_harm_the_next(notebook: Notebook):
    # The server's successor would be killed too, and what it was importing would never be preloaded again.
    wait_for_preloading(notebook)
    cell = start_waiting(notebook)
    server = notebook.launched()[0].parent()
    for process in notebook.servers():
        with contextlib.suppress(psutil.NoSuchProcess):  # the store of an earlier launch may end meanwhile
            if process.ppid() == server.pid:
                process.kill()
    notebook.interrupt()
    assert notebook.finish(cell).error == "KeyboardInterrupt"
    assert notebook.value("notebook_launcher(join, num_processes=2)") == [0, 1]


def start_waiting(notebook: Notebook) -> Cell:
    """Two ranks that have met, and wait."""
    notebook.check("def wait():\n    join()\n    print('ready')\n    time.sleep(600)")
    cell = notebook.begin("notebook_launcher(wait, num_processes=2)")
    return notebook.read_until_ranks_wrote(cell, "ready", 2)


def test_many_launches_in_a_row_leave_nothing(notebook: Notebook):
    """Thirty launches."""
    notebook.check("""
    import gc, psutil

    def held():
        gc.collect()
        me = psutil.Process()
        return me.num_fds(), threading.active_count(), me.memory_info().rss / 2**20

    for _ in range(3):
        notebook_launcher(join, num_processes=2)
    before = held()
    """)
    notebook.check(
        """
    results = [notebook_launcher(join, num_processes=2) for _ in range(30)]
    after = held()
    """,
        timeout=110,
    )
    assert notebook.value("all(result == [0, 1] for result in results)")
    fds, threads, memory = notebook.value("[b - a for a, b in zip(before, after)]")
    # A server that preloads more may have replaced another: a thread waits for its end.
    assert fds <= 2
    assert threads <= 1
    assert memory < 8, "MB"
    # The keeper, its server, the store and its guard, and two spares.
    wait_until(lambda: len(notebook.processes()) <= 6, GONE_WITHIN, lambda: f"left: {notebook.processes()}")
    # One for each launch would make thirty of them.
    wait_until(lambda: max(map(open_files, notebook.servers())) < 20, GONE_WITHIN)


def open_files(process: psutil.Process) -> int:
    """How many it has open; none once it has ended."""
    try:
        return process.num_fds()
    except psutil.NoSuchProcess:
        return 0


def test_ranks_that_return_right_after_they_have_met_do_so_every_time(notebook: Notebook):
    """A rank that is done must not take away the connection that another still opens."""
    notebook.check("""
    def meet():
        dist.init_process_group("gloo")
        return dist.get_rank()
    """)
    assert notebook.value("[notebook_launcher(meet, num_processes=3) for _ in range(15)] == [[0, 1, 2]] * 15")


def test_several_threads_launch_at_once(notebook: Notebook):
    assert notebook.value("""
    from concurrent.futures import ThreadPoolExecutor

    def add(number):
        join()
        total = torch.tensor(float(number))
        for _ in range(20):
            dist.all_reduce(total)
            total /= 2
        return total.item()

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda n: notebook_launcher(add, (n,), num_processes=2), range(8)))
    results
    """) == [[float(number)] * 2 for number in range(8)]


def test_a_launch_in_a_rank_works(notebook: Notebook):
    notebook.check("""
    def inner():
        return os.environ["RANK"], os.environ["WORLD_SIZE"]

    def outer():
        return notebook_launcher(inner, num_processes=2)
    """)
    assert notebook.value("notebook_launcher(outer, num_processes=1)") == [[("0", "2"), ("1", "2")]]


def test_a_launch_works_beside_a_pool_that_the_kernel_has_forked(notebook: Notebook):
    notebook.check("""
    import multiprocessing
    pool = multiprocessing.get_context("fork").Pool(2)
    """)
    try:
        for _ in range(3):
            assert notebook.value("notebook_launcher(join, num_processes=2)") == [0, 1]
            assert notebook.value("pool.map(abs, [-1, -2])") == [1, 2]
    finally:
        notebook.check("pool.terminate(); pool.join()")


def test_a_fork_of_the_kernel_can_launch_itself(notebook: Notebook):
    notebook.check("""
    def child():
        results.put(notebook_launcher(join, num_processes=2))

    import multiprocessing
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    process = context.Process(target=child)
    process.start()
    found = results.get()
    process.join(10)
    """)
    assert notebook.value("found, process.exitcode") == ([0, 1], 0)
    assert notebook.value("notebook_launcher(join, num_processes=2)") == [0, 1]


def test_a_launch_works_from_a_folder_that_is_gone(notebook: Notebook):
    notebook.check(
        "here = os.getcwd()\nimport tempfile\nfolder = tempfile.mkdtemp()\nos.chdir(folder)\nos.rmdir(folder)"
    )
    try:
        cell = notebook.run("notebook_launcher(int, num_processes=2)")
        assert cell.error in (None, "ConfigurationError", "LaunchError", "PayloadError"), cell
        assert "notebook_accel/" not in cell.traceback
    finally:
        notebook.check("os.chdir(here)")


def test_a_notebook_without_torch_can_launch_and_stays_without(open_notebook: Callable[..., Notebook]):
    """A kernel of its own, whose server is still importing torch at the first launch."""
    notebook = open_notebook(env=OWN_SERVER)
    notebook.check(f"""
    {UNTRAINED}
    import sys
    from notebook_accel import notebook_launcher

    def f():
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        total = torch.ones(3)
        dist.all_reduce(total)
        return total

    def plain():
        return 5

    """)
    assert notebook.value("notebook_launcher(plain, num_processes=2), 'torch' in sys.modules") == ([5, 5], False)
    notebook.check("results = notebook_launcher(f, num_processes=2)")
    assert notebook.value("[result.tolist() for result in results]") == [[2.0] * 3] * 2
