"""Runs Accelerate's example scripts with notebook-accel, from a notebook and from a shell, and compares the results.

FOLDER is `examples` of a checkout of Accelerate. Only the imports are changed. What the examples download is made up
(stand_ins). Prints a table for docs/api/accelerate-names.md.
"""

import argparse
import functools
import math
import multiprocessing
import os
import re
import runpy
import shutil
import socket
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import KernelManager

HERE = Path(__file__).parent
EXAMPLES = {
    "nlp_example": "",
    "complete_nlp_example": "--with_tracking --checkpointing_steps epoch",
    "cv_example": "--data_dir images",
    "complete_cv_example": "--data_dir images --with_tracking --checkpointing_steps 1",
    "by_feature/automatic_gradient_accumulation": "--observed_batch_size 8",
    "by_feature/checkpointing": "--checkpointing_steps 2",
    "by_feature/cross_validation": "--num_folds 2",
    "by_feature/ddp_comm_hook": "--ddp_comm_hook fp16",
    "by_feature/early_stopping": "",
    "by_feature/gradient_accumulation": "--gradient_accumulation_steps 2",
    "by_feature/gradient_accumulation_for_autoregressive_models": "--gradient_accumulation_steps 2",
    "by_feature/local_sgd": "--local_sgd_steps 2",
    "by_feature/memory": "",
    "by_feature/multi_process_metrics": "",
    "by_feature/profiler": "",
    "by_feature/schedule_free": "",
    "by_feature/tracking": "--with_tracking",
}
"""The examples that run on CPUs, with their arguments; all of them also get --cpu."""
ENTRY = 'if __name__ == "__main__":'
RESULT = re.compile(r"(?:epoch \d+|Average test metrics).*")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
SECONDS = 180
"""What a run may take."""
SETTINGS = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


class Failed(Exception):
    """A run that ended with an error."""


def main() -> int:
    """Run all examples, or those named on the command line, and return 1 if a result differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="such as nlp_example; the default is all that the folder has")
    arguments = parser.parse_args()
    names = arguments.names or [name for name in EXAMPLES if (arguments.folder / f"{name}.py").exists()]
    if not names:
        parser.error(f"{arguments.folder} has none of Accelerate's examples; pass the folder examples of a checkout")
    os.environ.update(SETTINGS)  # before anything imports torch or transformers
    print("| example | `notebook_launcher` | `%%accelerate` | `notebook-accel launch` |\n|---|---|---|---|")
    try:
        with tempfile.TemporaryDirectory() as folder:
            same = try_examples(arguments.folder, names, Path(folder))
    finally:
        for manager, _ in KERNELS.values():
            manager.shutdown_kernel(now=True)
    return 0 if same else 1


def try_examples(examples: Path, names: list[str], folder: Path) -> bool:
    """Print a row for each example, and return whether all results are the same."""
    data = folder / "data"
    subprocess.run([sys.executable, HERE / "stand_in_data.py", data], check=True, capture_output=True)
    same = True
    for number, name in enumerate(names):
        cells = compare((examples / f"{name}.py").read_text(), name, data, folder / str(number))
        print(f"| `{name}` | {' | '.join(cells)} |", flush=True)
        same = same and all(cell == "same" for cell in cells)
    return same


def compare(source: str, name: str, data: Path, folder: Path) -> list[str]:
    """What each way to run an example gives, beside Accelerate."""
    try:
        expected = with_accelerate(source, name, fresh(data, folder / "accelerate"))
    except Failed as failure:
        return [f"Accelerate itself fails: {failure}"] * 3
    source = renamed(source)
    cells = []
    for number, launch in enumerate((with_notebook_launcher, with_magic, with_command)):
        try:
            cells.append(difference(expected, launch(source, name, fresh(data, folder / str(number)))))
        except Failed as failure:
            cells.append(str(failure))
    return cells


def renamed(source: str) -> str:
    """The source of an example that imports notebook_accel instead of accelerate, and is otherwise the same."""
    return re.sub(r"^(\s*(?:from|import)\s+)accelerate\b", r"\1notebook_accel", source, flags=re.MULTILINE)


def difference(expected: list[str], got: list[str]) -> str:
    """'same' if the lines have the same words, and the same numbers but for rounding; otherwise two that differ."""
    if not expected:
        return "Accelerate printed no result"
    if len(expected) != len(got):
        return f"{len(got)} lines of results instead of {len(expected)}"
    for one, other in zip(expected, got, strict=True):
        numbers = [[float(number) for number in NUMBER.findall(line)] for line in (one, other)]
        close = len(numbers[0]) == len(numbers[1]) and all(map(_close, *numbers))
        if NUMBER.sub("", one) != NUMBER.sub("", other) or not close:
            return f"`{other}` instead of `{one}`"
    return "same"


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9)


def with_accelerate(source: str, name: str, folder: Path) -> list[str]:
    """Accelerate itself, in two forks of this process, which import what takes long only once."""
    import accelerate  # noqa: F401
    import transformers

    transformers.BertForSequenceClassification  # noqa: B018 - a module that is imported at its first use
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    path = script(source, name, folder)
    fork = multiprocessing.get_context("fork")
    ranks = [fork.Process(target=run_rank, args=(rank, port, path, name)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(SECONDS)
        rank.kill()
    text = (folder / "rank0.txt").read_text()
    if any(rank.exitcode for rank in ranks):
        print(text[-4000:], file=sys.stderr)
        raise Failed(f"the ranks end with {[rank.exitcode for rank in ranks]}")
    return RESULT.findall(text)


def run_rank(rank: int, port: int, path: Path, name: str) -> None:
    """One rank of `with_accelerate`, in a process of its own, which writes to rank0.txt or rank1.txt."""
    os.chdir(path.parent)
    environ = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_PORT": port}
    os.environ.update({key: str(value) for key, value in environ.items()}, MASTER_ADDR="127.0.0.1")
    os.environ["ACCELERATE_USE_CPU"] = "true"
    with open(f"rank{rank}.txt", "w") as file:
        sys.stdout = sys.stderr = file
        sys.path[:0] = stand_ins(name)
        sys.argv = [str(path), "--cpu", *EXAMPLES.get(name, "").split()]
        try:
            runpy.run_path(str(path), run_name="__main__")
        except BaseException:
            traceback.print_exc()
            raise


def with_command(source: str, name: str, folder: Path) -> list[str]:
    """`notebook-accel launch`."""
    return run(
        [sys.executable, "-m", "notebook_accel", "launch", "--num-processes", "2", "--cpu"], source, name, folder
    )


def with_notebook_launcher(source: str, name: str, folder: Path) -> list[str]:
    """A notebook whose cells define the example's functions, and launch `main`."""
    launch = "from notebook_accel import notebook_launcher\nnotebook_launcher(main, num_processes=2)"
    return cells([f"%cd -q {folder}", prelude(name) + functions(source), launch], name)


def with_magic(source: str, name: str, folder: Path) -> list[str]:
    """A notebook that runs the example in a cell on all ranks."""
    cell = f"%%accelerate -n 2\n{prelude(name)}{functions(source)}\nmain()"
    return cells([f"%cd -q {folder}", "%load_ext notebook_accel", cell, "%accelerate stop"], name)


def functions(source: str) -> str:
    """The example without its last lines, which run it if it is a script, as they would in a cell."""
    head, entry, _ = source.partition(ENTRY)
    if not entry:
        raise Failed("it does not end with a call of main")
    return head


def prelude(name: str) -> str:
    """What a script has and a notebook doesn't."""
    argv = [f"{Path(name).name}.py", "--cpu", *EXAMPLES.get(name, "").split()]
    return f"import sys\nsys.argv = {argv}\n__file__ = sys.argv[0]\n"


def run(command: list[str], source: str, name: str, folder: Path) -> list[str]:
    """Run an example as a script, and return its lines of results."""
    command = [*command, str(script(source, name, folder)), "--cpu", *EXAMPLES.get(name, "").split()]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([*stand_ins(name), os.environ.get("PYTHONPATH", "")])}
    try:
        done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise Failed(f"still runs after {SECONDS} s") from None
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-4000:], file=sys.stderr)
        raise Failed(f"ends with status {done.returncode}")
    return RESULT.findall(done.stdout)


def script(source: str, name: str, folder: Path) -> Path:
    """Writes an example to a folder."""
    path = folder / f"{Path(name).name}.py"
    path.write_text(source)
    return path


KERNELS: dict[str, tuple[KernelManager, BlockingKernelClient]] = {}
"""Kernels by the stand-ins on their path: one for the examples with texts, one for those with images."""


def cells(sources: list[str], name: str) -> list[str]:
    """Run cells in a kernel, and return their lines of results."""
    path = os.pathsep.join([*stand_ins(name), os.environ.get("PYTHONPATH", "")])
    if path not in KERNELS:
        # Unix sockets, because a kernel warns about TCP, which is not encrypted.
        manager = KernelManager(transport="ipc", connection_file=os.path.join(tempfile.mkdtemp(), "kernel.json"))
        manager.start_kernel(env={**os.environ, "PYTHONPATH": path})
        client = manager.blocking_client()
        client.start_channels()
        client.wait_for_ready(timeout=SECONDS)
        KERNELS[path] = manager, client
    manager, client = KERNELS[path]
    text: list[str] = []
    try:
        for source in sources:
            reply = client.execute_interactive(source, timeout=SECONDS, output_hook=functools.partial(_collect, text))
            if reply["content"]["status"] != "ok":
                print("".join(text)[-4000:], reply["content"]["evalue"], file=sys.stderr)
                raise Failed(f"raises {reply['content']['ename']}")
    except TimeoutError:
        del KERNELS[path]
        manager.shutdown_kernel(now=True)
        raise Failed(f"still runs after {SECONDS} s") from None
    return RESULT.findall("".join(text))


def _collect(text: list[str], message: dict[str, Any]) -> None:
    if message["msg_type"] == "stream":
        text.append(message["content"]["text"])


def stand_ins(name: str) -> list[str]:
    """Folders with modules that stand in for packages. Only examples with images find a torchvision."""
    return [str(HERE / "stand_ins"), *([str(HERE / "stand_ins/images")] if "cv_example" in name else [])]


def fresh(data: Path, folder: Path) -> Path:
    """A copy of the data to run in, as checkpoints and logs of one run must not meet those of another."""
    return shutil.copytree(data, folder)


if __name__ == "__main__":
    sys.exit(main())
