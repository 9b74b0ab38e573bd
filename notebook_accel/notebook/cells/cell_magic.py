"""The cell magic `%%accelerate`: runs a cell on every rank."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from IPython.core.autocall import IPyAutocall
from IPython.core.macro import Macro

from notebook_accel.errors import JobCancelledError, LaunchError, NotebookAccelError, RankError, RankFailure
from notebook_accel.events import Phase, Shown
from notebook_accel.launch.driver import attach
from notebook_accel.launch.driver.stop_policy import StopReason, StopRequests, catch_sigint
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.rank_state import RankState
from notebook_accel.launch.journal.writing import Journal
from notebook_accel.launch.show import console
from notebook_accel.launch.show.displays import Displays
from notebook_accel.launch.show.job_views import LateView, Views
from notebook_accel.launch.system import own_process
from notebook_accel.launch.wire.payload import Payload
from notebook_accel.notebook.cells import free_names
from notebook_accel.notebook.cells import session as sessions
from notebook_accel.notebook.cells.cell_messages import Cell, Reply, Variable
from notebook_accel.notebook.cells.cell_options import CellArguments, command, parse_ranks
from notebook_accel.notebook.cells.on_rank import worker
from notebook_accel.notebook.cells.persistent import PersistentRanks
from notebook_accel.notebook.ipython import magic_commands
from notebook_accel.notebook.ipython.cell_numbers import as_typed, number_of_current
from notebook_accel.rank_spans import spans

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_MAGIC = "%%accelerate"
_FIRST_WORD = re.compile(r"[^\W\d]\w*")


class CellCode(NamedTuple):
    """The code of a cell, or of a part of one."""

    source: str
    """The code with IPython syntax translated to Python, line for line."""
    text: str
    """The cell as the user wrote it."""
    filename: str
    """Its file name in tracebacks."""
    number: int = 0
    """The number under which the ranks keep its text and its value, in `In` and `Out`; 0 if they don't."""


def accelerate(shell: InteractiveShell, line: str, body: str, first: str = "") -> Job | None:
    """Runs a cell on the ranks.

    Args:
        shell: The notebook's shell.
        line: The options.
        body: The lines below.
        first: The first line of the cell as the user wrote it, by default `%%accelerate` with its options.

    Raises:
        ConfigurationError: An option can't work.
        PayloadError: A variable that the cell reads can't be sent.
        LaunchError: The ranks can't be started, or can't continue.
        RankError: The cell failed on a rank.
        KeyboardInterrupt: It was interrupted.
    """
    arguments: CellArguments | None = magic_commands.run(command, _MAGIC, line)
    if arguments is None:  # after --help
        return None
    text = as_typed((first or f"{_MAGIC} {line}").rstrip() + "\n" + body)
    source = f"# {_MAGIC}\n{python_of(shell, body)}"  # so that line numbers match the text
    return run_code(shell, arguments, CellCode(source, text, shell.compile.cache(text, number_of_current(shell))))


def run_code(shell: InteractiveShell, arguments: CellArguments, code: CellCode) -> Job | None:
    """Runs code on the ranks; raises what `accelerate` does."""
    source, text, filename, _ = code
    _check_code(code)
    session = sessions.current(shell)
    ranks = session.ready(arguments.size, keep=arguments.keep)
    members = arguments.members(ranks)
    ranks.ensure_ready(members)
    cell = Cell(
        source=source,
        text=text,
        filename=filename,
        place=console.current.display_name(filename),
        shown=frozenset(parse_ranks("--show", arguments.show, ranks.size))
        if arguments.show
        else frozenset(list(members)[:1]),
        wants_value=arguments.name is not None,
        number=code.number,
    )
    read = {name: _place(filename, text, number) for name, number in free_names.read_names(ast.parse(source)).items()}
    packed, sent = ranks.variables.before((worker.run_cell, (tuple(cell),), {}), read, members)
    run = _CellRun(session, ranks, members, packed, sent, arguments.name, console.current.display_name(filename))
    if arguments.block:
        with catch_sigint(run.requests):
            run()
        run.job.result()
        return None
    try:
        own_process.start_thread(partial(_run_in_background, run), f"accelerate {run.job.name}")
    except LaunchError:
        run.give_up()
        raise
    attach.remember(run.job)
    return run.job


def _run_in_background(run: _CellRun) -> None:
    """Runs a cell in the background, and reports its error, which otherwise only `Job.result` would raise."""
    run()
    try:
        run.job.result()
    except JobCancelledError:
        pass
    except NotebookAccelError as error:
        console.current.notice(f"{run.job.title}: {str(error).splitlines()[0]}")


class _CellRun:
    """Runs one cell in the calling thread; `job` tracks it from the start."""

    def __init__(
        self,
        session: sessions.Session,
        ranks: PersistentRanks,
        members: Sequence[int],
        packed: Payload,
        sent: Sequence[Variable],
        name: str | None,
        place: str,
    ) -> None:
        self.requests = StopRequests()
        plan = ranks.plan
        self.job = Job(
            place,
            0,
            ranks.size,
            plan.device_text,
            devices=plan.device_ids,
            co2_per_kwh=plan.config.co2_per_kwh,
        )
        self.job.runner.cancel = lambda: self.requests.submit(StopReason.CANCEL)
        self.job.runner.show = lambda: console.current.show(self.job)
        self._session = session
        self._ranks = ranks
        self._members = members
        self._packed = packed
        self._sent = sent
        self._name = name
        ranks.running = self.job

    def give_up(self) -> None:
        """Leaves the ranks to the next cell, without running this one."""
        self._ranks.running = None
        self._packed.close()

    def __call__(self) -> None:
        """Runs the cell to its end; the job then has its result or error."""
        # Most cells end at once. A cell that shows no panel is not recorded either.
        late = LateView(self.job, Journal)
        view = Views(self.job, LateView.opening(console.current.choose_view()), late)
        replies: list[Reply] = []
        try:
            self._ranks.call(
                self.job,
                self._packed,
                self.requests,
                members=self._members,
                view=view,
                digest=lambda found: self._collect_replies(found, replies),
            )
        finally:
            self._ranks.running = None
            self._ranks.cells += 1
            self._ranks.variables.after(
                {
                    rank: reply.bound for rank, reply in zip(self._members, replies, strict=False)
                },  # none if it has failed
                self._sent,
                [rank for rank in self._members if _has_loaded(self.job.ranks[rank])],
            )
            view.finish()
            self._packed.close()
        show(self._members, replies, self._ranks.plan.label)

    def _collect_replies(self, found: list[Any], replies: list[Reply]) -> list[Any] | None:
        replies += [Reply(*fields) for fields in found]
        if self._name is None:
            return None
        values = [reply.value for reply in replies]
        self._session.namespace[self._name] = values
        return values


def _has_loaded(state: RankState) -> bool:
    """Whether a rank has loaded the variables sent to it. One that no longer responds may still fail to load them."""
    if state.failed is not None:
        return state.failed.stage != "loading"
    return state.returned is not None or state.phase not in (Phase.STARTING, Phase.IDLE, Phase.LOADING)


def show(members: Sequence[int], replies: Sequence[Reply], label: Any) -> None:
    """Shows the values of the last expression: equal values once, rich ones of the ranks that `--show` selects."""
    rich = {rank: reply.bundle for rank, reply in zip(members, replies, strict=False) if reply.bundle}
    if rich:
        values = {rank: Shown(alone=len(rich) == 1, bundle=[bundle]) for rank, bundle in rich.items()}
        Displays(members, label, console.current).show(values, 0)
        return
    by_text: dict[str, list[int]] = {}
    for rank, reply in zip(members, replies, strict=False):
        if reply.text is not None:
            by_text.setdefault(reply.text, []).append(rank)
    for text, ranks in by_text.items():
        head = label(spans(ranks))
        separator = "\n" if "\n" in text and head else ""
        console.current.write("stdout", f"{head}{separator}{text}\n")


def _check_code(code: CellCode) -> None:
    """Raises a `RankError` if the code is not valid Python, before it is sent to the ranks."""
    try:
        compile(code.source, code.filename, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except SyntaxError as error:
        raise _not_python(error, code.filename, code.text) from error


def python_of(shell: Any, body: str) -> str:
    """Translates a cell's body to Python, keeping its line numbers."""
    code = body.lstrip("\n")
    blank = body[: len(body) - len(code)]  # which IPython would strip
    try:
        plain = bool(ast.parse(code).body) and ("\n" in code.strip() or not _may_be_magic(shell, code))
    except (SyntaxError, ValueError):
        plain = False
    return body if plain else blank + str(shell.transform_cell(code))


def _may_be_magic(shell: Any, line: str) -> bool:
    """Whether IPython may treat a single line of valid Python, such as `ls -l` or `exit`, as something else."""
    word = _FIRST_WORD.match(line)
    if word is None or keyword.iskeyword(word[0]):
        return False
    return bool(
        shell.autocall or shell.find_magic(word[0]) or isinstance(shell.user_ns.get(word[0]), (Macro, IPyAutocall))
    )


def _not_python(error: SyntaxError, filename: str, text: str) -> RankError:
    lines = text.splitlines()
    where = f"{console.current.display_name(filename)}, line {error.lineno}"
    shown = ""
    if error.lineno is not None and error.lineno <= len(lines):
        shown = f"\n    {lines[error.lineno - 1]}\n    {' ' * ((error.offset or 1) - 1)}^"
    summary = f"{type(error).__name__}: {error.msg}"
    return RankError(f"the cell did not run\n\n{where}{shown}\n{summary}", [RankFailure((), summary, "", error)])


def _place(filename: str, text: str, number: int) -> str:
    line = text.splitlines()[number - 1].strip() if number <= len(text.splitlines()) else ""
    return f"{console.current.display_name(filename)} line {number}: `{line}`"
