"""What ranks write appears below the launching cell: labeled, whole, in order, all of it."""

import re
from collections.abc import Iterator

import pytest

from notebook_accel.launch.show.line_merger import MERGE_WINDOW
from tests.live_notebook import Notebook, lines_by_rank


@pytest.fixture
def merging(notebook: Notebook) -> Iterator[Notebook]:
    """A notebook that shows equal lines once, however far apart a busy machine lets ranks write them."""
    notebook.merge_within(30)
    yield notebook
    if notebook.is_usable():
        notebook.merge_within(MERGE_WINDOW)


def test_lines_are_labeled_by_rank(notebook: Notebook):
    notebook.check("def say(): print('I am', os.environ['RANK'])")
    cell = notebook.check("notebook_launcher(say, num_processes=3)")
    assert sorted(cell.lines) == ["[0] I am 0", "[1] I am 1", "[2] I am 2"]
    assert cell.stderr == ""


@pytest.mark.parametrize(("size", "label"), [(2, "[0-1]"), (4, "[0-3]")])
def test_equal_lines_appear_once(merging: Notebook, size: int, label: str):
    merging.check("""
    def say():
        join()
        print("the same")
        print("and again")
    """)
    cell = merging.check(f"notebook_launcher(say, num_processes={size})")
    assert cell.lines == [f"{label} the same", f"{label} and again"]


@pytest.mark.parametrize("end", ["\n", ""])
def test_equal_lines_appear_once_although_one_rank_has_ended_since(merging: Notebook, end: str):
    merging.check(f"""
    def say():
        join()
        print("the same", end={end!r})
    """)
    for _ in range(5):
        assert merging.check("notebook_launcher(say, num_processes=2)").lines == ["[0-1] the same"]


def test_a_single_rank_needs_no_label(notebook: Notebook):
    assert notebook.check("notebook_launcher(print, ('alone',), num_processes=1)").stdout == "alone\n"


def test_a_template_makes_the_label(notebook: Notebook):
    notebook.check("def say(): print('I am', os.environ['RANK'])")
    template = "<${role_name} ${rank} ${local_rank}>"
    cell = notebook.check(f"notebook_launcher(say, num_processes=2, log_line_prefix_template={template!r})")
    assert sorted(cell.lines) == ["<default 0 0> I am 0", "<default 1 1> I am 1"]


def test_each_stream_arrives_as_itself(merging: Notebook):
    merging.check("""
    def say():
        join()
        print("out")
        print("err", file=sys.stderr)
    """)
    cell = merging.check("notebook_launcher(say, num_processes=2)")
    assert cell.stdout == "[0-1] out\n"
    assert cell.stderr == "[0-1] err\n"


WRITERS = {
    "print": "print('said')",
    "sys.stdout.write": "sys.stdout.write('said\\n')",
    "sys.__stdout__": "sys.__stdout__.write('said\\n')",
    "sys.stdout.buffer": "sys.stdout.buffer.write(b'said\\n'); sys.stdout.buffer.flush()",
    "os.write": "os.write(1, b'said\\n')",
    "puts": "import ctypes; ctypes.CDLL(None).puts(b'said')",
    "printf": "import ctypes; ctypes.CDLL(None).printf(b'sa%s\\n', b'id')",
    "printf without a newline at the end": "import ctypes; ctypes.CDLL(None).printf(b'said')",
    "a subprocess": "import subprocess; subprocess.run(['echo', 'said'])",
    "os.system": "os.system('echo said')",
    "a thread": "t = threading.Thread(target=print, args=('said',)); t.start(); t.join()",
    "a fork": "import multiprocessing as m; p = m.get_context('fork').Process(target=print, args=('said',)); "
    "p.start(); p.join()",
    "atexit": "import atexit; atexit.register(print, 'said')",
    "logging": "import logging; logging.basicConfig(stream=sys.stdout, format='%(message)s'); logging.warning('said')",
    "a handler that keeps records": "import logging.handlers; kept = logging.handlers.MemoryHandler(9); "
    "kept.setTarget(logging.StreamHandler(sys.stdout)); logging.getLogger().addHandler(kept); logging.warning('said')",
    "no newline at the end": "print('said', end='')",
}


@pytest.mark.parametrize("name", WRITERS)
def test_output_appears_whoever_writes_it(notebook: Notebook, name: str):
    notebook.check(f"def say(): {WRITERS[name]}")
    cell = notebook.check("notebook_launcher(say, num_processes=2)")
    assert lines_by_rank(cell.stdout) == {0: ["said"], 1: ["said"]}


def test_warnings_appear_on_standard_error(notebook: Notebook):
    notebook.check("def say():\n    import warnings\n    warnings.warn('careful')")
    cell = notebook.check("notebook_launcher(say, num_processes=2)")
    for lines in lines_by_rank(cell.stderr).values():
        assert "UserWarning: careful" in lines[0]


def test_a_line_that_has_not_ended_is_shown_while_its_rank_runs(notebook: Notebook, tmp_path):
    go_on = tmp_path / "go_on"
    notebook.check(f"""
    def ask():
        print("loading...", end="", flush=True)
        wait_for({str(go_on)!r})
    """)
    cell = notebook.begin("notebook_launcher(ask, num_processes=2)")
    notebook.read_until(cell, "loading...")
    assert not cell.ended
    go_on.touch()
    notebook.finish(cell)
    assert cell.error is None


def test_a_line_is_shown_while_its_rank_runs(notebook: Notebook, tmp_path):
    go_on = tmp_path / "go_on"
    notebook.check(f"""
    def ask():
        if os.environ["RANK"] == "0":
            print("only here")
        wait_for({str(go_on)!r})
    """)
    cell = notebook.begin("notebook_launcher(ask, num_processes=2)")
    notebook.read_until(cell, "[0] only here\n")
    assert not cell.ended
    go_on.touch()
    notebook.finish(cell)
    assert cell.error is None


def test_text_of_any_language_arrives_whole(notebook: Notebook):
    text = "naïve Größe 数据 данные 🏖️ é"
    notebook.check(f"""
    def say():
        for byte in {text!r}.encode():  # torn inside characters
            os.write(1, bytes([byte]))
        os.write(1, b"\\n")
    """)
    assert notebook.check("notebook_launcher(say, num_processes=2)").stdout.count(f"] {text}\n") in (1, 2)


def test_bytes_that_are_no_text_do_no_harm(notebook: Notebook):
    notebook.check("def say():\n    os.write(1, bytes(range(128, 256)) + b'\\n')\n    print('after')")
    cell = notebook.check("notebook_launcher(say, num_processes=2)")
    assert [lines[-1] for lines in lines_by_rank(cell.stdout).values()] == ["after", "after"]


def test_a_line_of_a_megabyte_arrives(notebook: Notebook):
    notebook.check("def say(): print('x' * 2**20)")
    notebook.check("notebook_launcher(say, num_processes=1)")
    assert all_lines(notebook).count("x") == 2**20


def test_the_order_of_each_rank_is_kept_when_lines_are_alike_in_part(notebook: Notebook):
    notebook.check("""
    def say():
        rank = join()
        for step in range(200):
            print(f"step {step}")
            if step % 3 == rank:
                print(f"rank {rank} at {step}")
    """)
    cell = notebook.check("notebook_launcher(say, num_processes=3)")
    for rank, lines in lines_by_rank(cell.stdout).items():
        expected = []
        for step in range(200):
            expected += [f"step {step}"] + [f"rank {rank} at {step}"] * (step % 3 == rank)
        assert lines == expected
    assert len(cell.lines) < 3 * 200 + 200  # at least some appeared once


def test_output_before_a_kill_is_not_lost(notebook: Notebook):
    notebook.check("""
    def die():
        for number in range(20_000):
            print(number)
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    cell = notebook.run("notebook_launcher(die, num_processes=2)")
    assert "killed by SIGKILL" in cell.traceback
    by_rank = lines_by_rank(all_lines(notebook))
    for lines in by_rank.values():
        assert lines == [str(number) for number in range(len(lines))]
    assert max(map(len, by_rank.values())) == 20_000


def test_output_before_an_error_is_not_lost(notebook: Notebook):
    notebook.check("""
    def die():
        join()
        print("last words of", os.environ["RANK"], end="")
        raise ValueError
    """)
    cell = notebook.run("notebook_launcher(die, num_processes=2)")
    assert cell.error == "RankError"
    assert sorted(cell.lines) == ["[0] last words of 0", "[1] last words of 1"]


def all_lines(notebook: Notebook) -> str:
    """All lines of the last launch, which are too many for the notebook."""
    return notebook.value("attach().log(last=None)")


def test_a_hundred_thousand_lines_are_in_the_log_and_the_last_ones_in_the_notebook(notebook: Notebook):
    """More than any buffer on the way holds."""
    notebook.check("""
    def flood():
        for number in range(100_000):
            print(number)
    """)
    cell = notebook.check("notebook_launcher(flood, num_processes=1)", timeout=100)
    assert cell.stdout == "".join(f"{number}\n" for number in range(1000))
    left_out, *last = cell.displays[-1].splitlines()
    assert last == [str(number) for number in range(99_000, 100_000)]
    assert re.fullmatch(
        r"… 98,000 lines are left out here; (attach\('\w+'\)\.log\(last=None\)) returns all .*", left_out
    )
    where = left_out.partition("; ")[2].partition(" returns")[0]
    again = notebook.check(f"found = {where}")
    assert f"lines are left out here; {where} returns all lines" in again.stdout, "where they are missing"
    assert notebook.value("found == ''.join(f'[0] {number}\\n' for number in range(100_000))")


def test_many_lines_of_two_ranks_arrive_in_the_order_of_each(notebook: Notebook):
    notebook.check("""
    def flood():
        rank = os.environ["RANK"]
        for number in range(20_000):
            print(f"{rank} says {number}")
    """)
    notebook.check("notebook_launcher(flood, num_processes=2)", timeout=100)
    found = lines_by_rank(all_lines(notebook))
    for rank in (0, 1):
        assert found[rank] == [f"{rank} says {number}" for number in range(20_000)]


def test_a_second_launch_writes_below_its_own_cell(notebook: Notebook):
    notebook.check("def say(text): print(text)")
    cells = [notebook.check(f"notebook_launcher(say, ('{text}',), num_processes=1)") for text in "ab"]
    assert [cell.stdout for cell in cells] == ["a\n", "b\n"]


def test_output_stands_between_what_the_cell_itself_prints(notebook: Notebook):
    cell = notebook.check("""
    print("before")
    notebook_launcher(print, ("during",), num_processes=1)
    print("after")
    """)
    assert cell.lines == ["before", "during", "after"]


def test_carriage_returns_show_what_was_drawn_last(notebook: Notebook):
    notebook.check("""
    def draw():
        for number in range(100):
            print(f"\\r{number}%", end="", flush=True)
        print()
        print("done")
    """)
    cell = notebook.check("notebook_launcher(draw, num_processes=2)")
    assert lines_by_rank(cell.stdout) == {0: ["99%", "done"], 1: ["99%", "done"]}


def test_colors_arrive_as_they_are(notebook: Notebook):
    notebook.check("def say(): print('\\x1b[31mred\\x1b[0m')")
    assert notebook.check("notebook_launcher(say, num_processes=1)").stdout == "\x1b[31mred\x1b[0m\n"


def test_a_rank_reads_nothing_from_standard_input(notebook: Notebook):
    assert notebook.value("notebook_launcher(lambda: sys.stdin.read(), num_processes=2)") == ["", ""]


def test_user_code_that_closes_its_streams_does_no_harm(notebook: Notebook):
    notebook.check("""
    def close():
        print("first")
        sys.stdout.close()
        os.close(1)
        os.close(2)
        return 5
    """)
    cell = notebook.check("notebook_launcher(close, num_processes=2)")
    assert lines_by_rank(cell.stdout) == {0: ["first"], 1: ["first"]}
    assert cell.value == "[5, 5]"


def test_a_notebook_that_has_closed_standard_output_gets_its_values(notebook: Notebook):
    notebook.check("""
    def say():
        print("not shown")
        return os.environ["RANK"]
    """)
    cell = notebook.check("""
    before, sys.stdout = sys.stdout, open(os.devnull, "w")
    sys.stdout.close()
    try:
        found = notebook_launcher(say, num_processes=2)
    finally:
        sys.stdout = before
    """)
    assert notebook.value("found") == ["0", "1"]
    assert "output of say() can't be shown, because sys.stdout doesn't take it (ValueError: " in cell.stderr


def test_warnings_tracebacks_and_the_debugger_name_the_cell(notebook: Notebook):
    cell = notebook.begin("""
        import threading, traceback, warnings, weakref

        def careful():
            warnings.warn("careful"); events = [threading.Event()]; known = weakref.WeakSet(events)
            breakpoint(); events.clear()  # what Python runs as an object dies is not where pdb stops
            thread = threading.Thread(target=fail, name="own")
            thread.start()
            thread.join()
            try:
                fail()
            except KeyError:
                traceback.print_exc()
            return 7

        def fail():
            raise KeyError("gone")

        notebook_launcher(careful, num_processes=1)
        """)
    assert notebook.client.get_stdin_msg(timeout=60)["content"]["prompt"].startswith("(Pdb)")
    notebook.client.input("c")
    notebook.finish(cell)
    number = notebook.value("len(In) - 2")
    assert f"In[{number}]:4: UserWarning: careful\n" in cell.stderr
    assert re.search(rf"^> In\[{number}\]\([567]\)careful\(\)", cell.stdout, re.MULTILINE), cell
    assert "Exception in thread own:\n" in cell.stderr
    assert cell.stderr.count(f'  File "In[{number}]", line 16, in fail\n    raise KeyError("gone")\n') == 2, cell
    assert "ipykernel" not in cell.stderr
    assert cell.value == "[7]"


def test_the_debugger_begins_in_the_cell_whose_launch_has_failed_in_a_loaders_worker(notebook: Notebook):
    notebook.check("""
    class Images(torch.utils.data.Dataset):
        def __len__(self): return 8
        def __getitem__(self, index): raise KeyError("no such image")

    def fail():
        for image in torch.utils.data.DataLoader(Images(), num_workers=1): pass
    """)
    failed = notebook.run("notebook_launcher(fail, num_processes=1)")
    number = notebook.value("len(In) - 3")
    assert failed.error_text.startswith("rank 0 raised KeyError: 'no such image'\n")
    assert f"\nIn[{number}], line 3, in __getitem__\n" in failed.error_text
    cell = notebook.begin("%debug")
    assert "pdb" in notebook.client.get_stdin_msg(timeout=60)["content"]["prompt"]
    notebook.client.input("q")
    notebook.finish(cell)
    assert "notebook_launcher(fail, num_processes=" in cell.stdout
