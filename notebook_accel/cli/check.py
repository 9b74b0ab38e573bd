"""`notebook-accel test`: checks whether this machine can train on several ranks.

Each check is a function that yields its findings, and a row of `CHECKS`. `rank_checks.py` runs in each rank.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from notebook_accel import hardware
from notebook_accel.config.click_options import WholeNumber
from notebook_accel.config.environment_variables import FILE_VARIABLE
from notebook_accel.errors import NotebookAccelError
from notebook_accel.launch.job.text import duration, size

_MARKS = {"ok": ("ok", "green"), "slow": ("slow", "yellow"), "wrong": ("WRONG", "red")}


@click.command("test")
@click.option(
    "--num_processes",
    "--num-processes",
    "ranks",
    type=WholeNumber(1),
    help="The number of ranks. Default: one per GPU, or 2.",
)
def command(ranks: int | None) -> None:
    """Check that this machine can train on several ranks.

    Starts ranks on all GPUs, or two on the CPU, both as a notebook does and as a script does. They exchange tensors,
    compute in 16 bits, and save and load a checkpoint. Reports what is slow or wrong and what to do about it; the exit
    code is 1 if something is wrong. Ignores saved settings, because they may be for several machines.
    """
    with _without_settings():
        found = _check(ranks or len(hardware.detect().gpus) or 2)
    wrong, slow = (sum(each.grade == grade for each in found) for grade in ("wrong", "slow"))
    if wrong:
        click.echo("\nThis machine cannot train on several ranks until this is fixed.")
        sys.exit(1)
    click.echo("\nThis machine is ready" + (f", but {slow} of these checks found something slow." if slow else "."))


@contextlib.contextmanager
def _without_settings() -> Iterator[None]:
    before = os.environ.get(FILE_VARIABLE)
    with tempfile.NamedTemporaryFile(suffix=".yaml") as empty:
        os.environ[FILE_VARIABLE] = empty.name
        try:
            yield
        finally:
            del os.environ[FILE_VARIABLE]
            if before is not None:
                os.environ[FILE_VARIABLE] = before


def _check(ranks: int) -> list[Finding]:
    """Runs the checks, and shows each finding."""
    found: list[Finding] = []
    for check in CHECKS.values():
        for finding in check(ranks):
            found.append(finding)
            _show(finding)
        if any(each.grade == "wrong" for each in found):
            break  # the other checks depend on it
    return found


def _show(finding: Finding) -> None:
    mark, color = _MARKS[finding.grade]
    click.echo(f"{click.style(f'{mark:<5}', fg=color)} {finding.name}: {finding.text}")
    if finding.grade != "ok" and finding.advice:
        click.echo(f"      → {finding.advice}")


_WARM = 1.0
"""Seconds above which a warm launch is slow; usually it takes a tenth of that."""
_SCRIPT_TIMEOUT = 120.0
RANK_SCRIPT = "import os, sys\nsys.stdout.write(os.environ.get('RANK', '0') + '\\n')"
"""Prints the rank in one write. With PYTHONUNBUFFERED, which images set, `print` makes two, and lines can mix."""
_BANDWIDTH = {"gloo": 50e6, "nccl": 1e9}
"""Bytes a second below which communication between ranks is slow."""
_ERRORS = {"bfloat16": 0.03, "float16": 0.01}
"""How far a 16-bit matrix product may deviate from float32. With 8 and 11 bits of precision, it is normally less."""
_SHARED = 2**30
_DISK = 5 * 2**30


@dataclass(frozen=True)
class Finding:
    """One result of a check."""

    name: str
    grade: str
    """`ok`, `slow` or `wrong`."""
    text: str
    advice: str = ""
    """How to fix it."""


def torch_and_devices(ranks: int) -> Iterator[Finding]:
    """Checks that torch can be imported and sees the devices that the driver lists."""
    began = time.perf_counter()
    code = "import torch; print(torch.__version__, torch.cuda.device_count())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    took = time.perf_counter() - began
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no error message"])[-1]
        yield Finding("torch", "wrong", f"import torch fails: {last}", "reinstall torch: https://pytorch.org")
        return
    version, count = done.stdout.split()
    yield Finding("torch", "ok", f"{version}, imported in {duration(took)}")
    found = hardware.detect()
    if found.hidden_gpus:
        advice = "unset the variable, or install a torch that is built for these GPUs: https://pytorch.org"
        yield Finding("GPUs", "wrong", f"there are GPUs, but {found.hidden_gpus}", advice)
    elif len(found.gpus) != int(count):
        advice = "the driver may be too old for this torch: compare nvidia-smi or rocm-smi with torch.version"
        yield Finding("GPUs", "wrong", f"the driver lists {len(found.gpus)} GPUs, but torch finds {count}", advice)
    else:
        names = ", ".join(gpu.name for gpu in found.gpus)
        yield Finding("devices", "ok", names or f"{found.kind}, {found.cores} cores")


def network(ranks: int) -> Iterator[Finding]:
    """Checks that ranks can find each other on this machine."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port), timeout=5):
                yield Finding("ports", "ok", f"loopback works (tried {port})")
    except OSError as error:
        advice = "a firewall or a sandbox blocks connections within this machine, which ranks need"
        yield Finding("ports", "wrong", f"no connection over the loopback interface: {error}", advice)
    began = time.perf_counter()
    try:
        socket.getaddrinfo(socket.gethostname(), None)
    except OSError as error:
        advice = f"add the line `127.0.0.1 {socket.gethostname()}` to /etc/hosts; torchrun and gloo look up this name"
        yield Finding("host name", "slow", f"{socket.gethostname()} cannot be looked up: {error}", advice)
    else:
        took = time.perf_counter() - began
        grade, advice = ("slow", "add the host's name to /etc/hosts") if took > 1 else ("ok", "")
        yield Finding("host name", grade, f"{socket.gethostname()}, looked up in {duration(took)}", advice)


def space(ranks: int) -> Iterator[Finding]:
    """Checks that there is enough room for DataLoader workers and for checkpoints."""
    for name, folder, least, advice in (
        (
            "shared memory",
            "/dev/shm",
            _SHARED,
            "DataLoader workers need it: in Docker, use --shm-size=8g or --ipc=host",
        ),
        ("disk", tempfile.gettempdir(), _DISK, "checkpoints need space: free some, or set TMPDIR"),
    ):
        if not Path(folder).is_dir():
            continue
        free = shutil.disk_usage(folder).free
        yield Finding(name, "ok" if free >= least else "slow", f"{folder}: {size(free)} free", advice)


def launches(ranks: int) -> Iterator[Finding]:
    """Checks that the fork server starts ranks, and what they can do."""
    from notebook_accel.cli.rank_checks import check
    from notebook_accel.launch import engines
    from notebook_accel.launch.driver.launcher import notebook_launcher

    try:
        engine = engines.default()
        began = time.perf_counter()
        notebook_launcher(os.getpid, num_processes=ranks)
        middle = time.perf_counter()
        notebook_launcher(os.getpid, num_processes=ranks)
        warm = time.perf_counter() - middle
        with tempfile.TemporaryDirectory() as folder:
            results = notebook_launcher(check, (folder,), num_processes=ranks)
    except NotebookAccelError as error:
        yield Finding("launch", "wrong", str(error), "see the error above; for a bug report, run `notebook-accel env`")
        return
    advice = "the cores are busy with other work, or the file system that holds the packages is slow"
    text = f"{ranks} ranks by {engine.name} in {duration(middle - began)}, then in {duration(warm)}"
    yield Finding("launch", "slow" if warm > _WARM else "ok", text, advice)
    yield from judge_ranks(results)


def judge_ranks(results: list[Mapping[str, Any]]) -> Iterator[Finding]:
    """Turns the measurements of all ranks into findings."""
    first = results[0]
    wrong = next((each["collectives"] for each in results if each["collectives"]), "")
    advice = "with NCCL, set NCCL_P2P_DISABLE=1 to see whether the link between GPUs is at fault"
    yield Finding(
        "collectives", "wrong" if wrong else "ok", wrong or f"{first['backend']} on {first['device']}", advice
    )
    slowest = min(each["bandwidth"] for each in results)
    slow = slowest < _BANDWIDTH.get(first["backend"], 0)
    advice = "the cores may be busy with other work; on GPUs, look at `nvidia-smi topo -m` and NCCL_DEBUG=INFO"
    yield Finding("bandwidth", "slow" if slow else "ok", f"all-reduce of 16 MB at {size(slowest)} a second", advice)
    for kind, limit in _ERRORS.items():
        error = max(each["precision"][kind] for each in results)
        advice = f"the device computes {kind} inaccurately: leave mixed_precision at no, and report it"
        yield Finding(kind, "ok" if error <= limit else "wrong", f"matrix products within {error:.1%}", advice)
    wrong = next((each["checkpoint"] for each in results if each["checkpoint"]), "")
    advice = "operations on this device may not be deterministic; if the steps differ for another reason, report it"
    text = wrong or "a step after loading is bit-for-bit the same"
    yield Finding("checkpoint", "wrong" if wrong else "ok", text, advice)


def script(ranks: int) -> Iterator[Finding]:
    """Checks that `notebook-accel launch` can also start the ranks of a script."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "script.py"
        file.write_text(RANK_SCRIPT)
        command = [sys.executable, "-m", "notebook_accel", "launch", "--quiet", f"--num_processes={ranks}", str(file)]
        began = time.perf_counter()
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SCRIPT_TIMEOUT, check=False)
        except subprocess.TimeoutExpired:
            advice = "the rendezvous may have failed: check the host's name, proxies and firewalls"
            yield Finding("script", "wrong", f"no rank ran within {_SCRIPT_TIMEOUT:.0f} s", advice)
            return
    advice = "try it with your own script and --debug"
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        yield Finding("script", "wrong", f"notebook-accel launch fails: {last}", advice)
        return
    if sorted(done.stdout.split()) != sorted(map(str, range(ranks))):
        text = f"it succeeds, but its {ranks} ranks, which print their numbers, print {done.stdout!r}"
        yield Finding("script", "wrong", text, advice)
        return
    took = time.perf_counter() - began
    yield Finding("script", "ok", f"{ranks} ranks of a script in {duration(took)}")


CHECKS: Mapping[str, Callable[[int], Iterator[Finding]]] = {
    "torch": torch_and_devices,
    "network": network,
    "space": space,
    "launches": launches,
    "script": script,
}
"""The checks in their order; later checks depend on earlier ones."""
