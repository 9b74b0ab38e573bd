"""Kills processes of training runs at random moments, until each is done, and compares it with an undisturbed one.

`scripts/soak` runs this. Any process of a job may be killed: the one that launches, the fork server, a rank, or another
that they have started; at any moment, and often while a checkpoint is being written. A training run must end with the
same weights, bit for bit, and leave neither a process nor a file that is not part of a checkpoint.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

_MARK = "NOTEBOOK_ACCEL_SOAK"
_RANKS = 2
_KEEP = 2
_EXIT_TIMEOUT = 30.0
"""Seconds in which everything ends that belongs to a driver that was killed."""
_ANSWER_TIMEOUT = 180.0
_LOOK = """
from notebook_accel import attach
job = attach()
print(job, job.stacks(), sep="\\n")
"""
"""Prints the state of the job that runs, and where its ranks are."""
_MOST_DELAY = 0.8
"""A kill comes at most so many seconds after the first step of an attempt."""


def train(folder: str, pids: str) -> str:
    """On each rank: a short training, with noise from all generators; returns a hash of the weights."""
    import torch

    from notebook_accel import Accelerator, set_seed

    torch.set_num_threads(1)
    set_seed(11)
    accelerator = Accelerator()
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Dropout(0.2), torch.nn.Linear(64, 8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    data = torch.utils.data.TensorDataset(torch.randn(48, 64))
    loader = torch.utils.data.DataLoader(data, batch_size=2, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for _ in accelerator.epochs(3):
        for (inputs,) in loader:
            accelerator.backward(model(inputs + random.random() * 0.01).square().mean())
            optimizer.step()
            optimizer.zero_grad()
            Path(pids, str(os.getpid())).touch()
            time.sleep(0.01)
    weights = accelerator.unwrap_model(model).state_dict()
    return hashlib.sha256(b"".join(each.numpy().tobytes() for each in weights.values())).hexdigest()


def drive() -> None:
    """PROCESS driver: launches a training run for each line of its input, and answers with its hash, or its error."""
    from notebook_accel import NotebookAccelError, notebook_launcher

    for line in sys.stdin:
        _preload()
        folder, pids, restarts = line.rstrip("\n").split("\t")
        options = {"checkpoint": folder, "every": 2, "keep": _KEEP, "max_restarts": int(restarts)}
        try:
            found = notebook_launcher(train, (folder, pids), _RANKS, device="cpu", **(options if folder else {}))
            answer = "done " + ",".join(sorted(set(found)))
        except NotebookAccelError as error:
            answer = f"failed {type(error).__name__}: {str(error).splitlines()[0]}"
        sys.stdout.write(f"answer {answer}\n")  # in one write: ranks have the same pipe
        sys.stdout.flush()


def _preload() -> None:
    """Waits for a server that has what each rank would import for seconds, as after a cell of a notebook."""
    from notebook_accel.launch import engines
    from notebook_accel.launch.engines.preloader import TRAINING
    from tests import preloading

    engine = engines.get()
    engine.warm()
    engine.preload(TRAINING)
    preloading.wait()


@dataclass
class Report:
    """What a soak has found."""

    runs: int = 0
    launches: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    """By what was killed."""
    while_saving: Counter[str] = field(default_factory=Counter)
    """Those of the kills that came while a checkpoint was being written."""
    problems: list[str] = field(default_factory=list)

    def text(self) -> str:
        rows = [("killed", "times", "while saving")]
        rows += [(name, str(count), str(self.while_saving[name])) for name, count in sorted(self.kills.items())]
        rows.append(("all", str(self.kills.total()), str(self.while_saving.total())))
        lines = [f"{name:<14}{count:>6}{saving:>15}" for name, count, saving in rows]
        result = "each ended with the same weights, and left no process and no file"
        if self.problems:
            result = "\n".join([f"{len(self.problems)} problems:", *self.problems])
        return "\n".join([*lines, f"{self.runs} training runs in {self.launches} launches: {result}"])


class Soak:
    """The training runs, one after the other.

    Args:
        home: A folder for everything.
        seed: Of the random choices.
        victims: What is killed, in turn; by default anything at random.
    """

    def __init__(self, home: Path, seed: int, victims: Sequence[str] = ()) -> None:
        self._home = home
        self._random = random.Random(seed)
        self._victims = victims
        self._temporary = home / "tmp"
        self._temporary.mkdir()
        state = home / "state"
        environ = {"TMPDIR": str(self._temporary), "NOTEBOOK_ACCEL_STATE": str(state), _MARK: str(home)}
        # A base server would stay, as it should, and be taken for what a driver has left behind.
        own = {"NOTEBOOK_ACCEL_SHARED_SERVER": "0"}
        self._environ = {**os.environ, **environ, **own, "NOTEBOOK_ACCEL_VIEW": "none"}
        self._driver: subprocess.Popen[str] | None = None
        self.report = Report()

    def run(self, kills: int) -> Report:
        """Starts training runs until so many processes were killed."""
        try:
            self._expected = self._launch("", self._folder("pids"), 0)
            assert self._expected.startswith("done"), self._expected
            self._usual = set(os.listdir(self._temporary))
            while self.report.kills.total() < kills:
                self._train(min(self._random.randint(1, 3), kills - self.report.kills.total()))
        finally:
            self._end_driver()
        return self.report

    def _train(self, kills: int) -> None:
        """One training, from its beginning to its end, with so many kills."""
        self.report.runs += 1
        number = self.report.runs
        folder, pids = self._folder(f"run{number}"), self._folder(f"pids{number}")
        answer = ""
        while not answer.startswith("done"):
            answer = self._launch(str(folder), pids, kills)
            kills = 0 if kills == 0 else kills - self._last_kills
            self._check_ranks(pids)
        if answer != self._expected:
            self.report.problems.append(f"run {number} ended with other weights: {answer}")
        self._check_files(folder)

    def _launch(self, folder: str, pids: Path, kills: int) -> str:
        """Makes a launch, kills a process meanwhile, and returns the driver's answer; empty if it was the driver."""
        self.report.launches += 1
        driver = self._running_driver()
        assert driver.stdin is not None
        before = {each.name for each in pids.iterdir()}
        driver.stdin.write(f"{folder}\t{pids}\t{self._random.choice((0, 2))}\n")
        driver.stdin.flush()
        self._last_kills, self._last_victim = 0, "nothing"
        if kills and self._wait_for_training(driver, pids, before):
            self._last_kills = self._kill(driver, Path(folder), pids)
        return self._answer(driver)

    def _wait_for_training(self, driver: subprocess.Popen[str], pids: Path, before: set[str]) -> bool:
        deadline = time.monotonic() + _ANSWER_TIMEOUT
        while time.monotonic() < deadline and driver.poll() is None:
            if len({each.name for each in pids.iterdir()} - before) >= _RANKS:
                return True
            time.sleep(0.005)
        return False

    def _kill(self, driver: subprocess.Popen[str], folder: Path, pids: Path) -> int:
        """Kills a process at a random moment; returns how many: none if the training was over before."""
        deadline = time.monotonic() + self._random.uniform(0, _MOST_DELAY)
        saving = self._random.random() < 0.5
        while time.monotonic() < deadline or (saving and not _is_saving(folder)):
            if time.monotonic() > deadline + _MOST_DELAY:
                break
            time.sleep(0.001)
        processes = self._roles(driver, pids)
        names = sorted(set(processes.values()))
        if self._victims:
            names = [name for name in names if name == self._victims[self.report.kills.total() % len(self._victims)]]
        if not names:
            return 0
        name = self._random.choice(names)
        pid = self._random.choice(sorted(pid for pid, role in processes.items() if role == name))
        is_saving = _is_saving(folder)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self._last_victim = f"{name} {pid}"
            self.report.kills[name] += 1
            self.report.while_saving[name] += is_saving
            if pid == driver.pid:
                driver.wait(_EXIT_TIMEOUT)
            return 1
        return 0

    def _roles(self, driver: subprocess.Popen[str], pids: Path) -> dict[int, str]:
        """What each process of the job is."""
        ranks = {int(each.name) for each in pids.iterdir()}
        found = {}
        for process in self._marked():
            with contextlib.suppress(psutil.Error):
                if process.pid == driver.pid:
                    found[process.pid] = "driver"
                elif process.pid in ranks:
                    found[process.pid] = "rank"
                else:
                    found[process.pid] = "fork server" if process.ppid() == driver.pid else "helper"
        return found

    def _marked(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                mine = process.environ().get(_MARK) == str(self._home) and process.pid != os.getpid()
                if mine and process.status() != psutil.STATUS_ZOMBIE:
                    yield process

    # The driver

    def _running_driver(self) -> subprocess.Popen[str]:
        if self._driver is None:
            command = [sys.executable, "-m", "tests.soak", "--drive"]
            pipe = subprocess.PIPE
            log = (self._home / "log").open("a")
            self._driver = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, text=True, env=self._environ)
            log.close()
        return self._driver

    def _answer(self, driver: subprocess.Popen[str]) -> str:
        assert driver.stdout is not None
        watchdog = threading.Timer(_ANSWER_TIMEOUT, self._give_up)
        watchdog.start()
        try:
            lines = (line for line in driver.stdout if line.startswith("answer "))
            answer = next(lines, "").removeprefix("answer ").rstrip("\n")
        finally:
            watchdog.cancel()
        if driver.poll() is not None:  # it may have been killed just after it answered
            self._end_driver()
        return answer

    def _give_up(self) -> None:
        """Kills everything that runs without an answer, or keeps the pipe of a driver that was killed."""
        look = [sys.executable, "-c", _LOOK]
        with contextlib.suppress(subprocess.TimeoutExpired):
            seen = subprocess.run(look, env=self._environ, capture_output=True, text=True, timeout=60, check=False)
            state = seen.stdout + seen.stderr
            self.report.problems.append(f"no answer after the end of {self._last_victim}:\n{state}")
        for process in self._marked():
            with contextlib.suppress(psutil.Error):
                self.report.problems.append(f"no answer while this runs: {process.pid} {' '.join(process.cmdline())}")
                process.kill()

    def _end_driver(self) -> None:
        driver, self._driver = self._driver, None
        if driver is None:
            return
        with contextlib.suppress(BrokenPipeError):
            assert driver.stdin is not None
            driver.stdin.close()
        driver.wait(_EXIT_TIMEOUT)
        assert driver.stdout is not None
        driver.stdout.close()
        deadline = time.monotonic() + _EXIT_TIMEOUT
        while (left := list(self._marked())) and time.monotonic() < deadline:
            time.sleep(0.02)
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended just now
                self.report.problems.append(f"a process is left: {process.pid} {' '.join(process.cmdline())}")
                process.kill()

    # The checks

    def _check_ranks(self, pids: Path) -> None:
        """After a launch, none of its ranks runs."""
        ranks = {int(each.name) for each in pids.iterdir()}
        deadline = time.monotonic() + _EXIT_TIMEOUT
        while (left := [each.pid for each in self._marked() if each.pid in ranks]) and time.monotonic() < deadline:
            time.sleep(0.02)
        self.report.problems += [f"rank {pid} is left" for pid in left]

    def _check_files(self, folder: Path) -> None:
        from notebook_accel.train.checkpoints import maintenance

        found = sorted(os.listdir(folder))
        whole = [
            path.name for path in maintenance.find(folder) if not maintenance.inspect(path, checksums=True).problem
        ]
        if len(found) != _KEEP or sorted(whole) != found:
            self.report.problems.append(f"{folder} has {found}, of which {whole} are whole")
        if self._driver is None:
            return
        extra = set(os.listdir(self._temporary)) - self._usual
        if extra:
            self.report.problems.append(f"left in the folder for temporary files: {sorted(extra)}")

    def _folder(self, name: str) -> Path:
        path = self._home / name
        path.mkdir()
        return path


def _is_saving(folder: Path) -> bool:
    return any(name.endswith(".unfinished") for name in os.listdir(folder))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kills", type=int, nargs="?", default=20)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--drive", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.drive:
        drive()
        return 0
    seed = random.randrange(10**6) if given.seed is None else given.seed
    print(f"seed {seed}")
    with tempfile.TemporaryDirectory() as home:
        report = Soak(Path(home), seed).run(given.kills)
    print(report.text())
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
