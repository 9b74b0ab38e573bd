"""What torch's compiler does as a process exits."""

import subprocess
import sys

SCRIPT = """
import atexit, logging, sys
from notebook_accel.launch.rank.patches import dynamo_exit

dynamo_exit.install()
assert not {"torch", "torch._dynamo"} & set(sys.modules)
from torch._dynamo import utils
utils.compile_times = lambda **_: print("formats") or "the table"

dynamo_exit.install()
atexit._run_exitfuncs()
print("quiet")
utils.log.setLevel(logging.INFO)
utils.log.addHandler(logging.StreamHandler(sys.stdout))
dynamo_exit.install()
dynamo_exit.install()  # as in a server that has been forked from one
"""


def test_compilations_are_summed_up_once_and_only_for_a_logger_that_takes_the_sum() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True, timeout=100)
    assert done.stdout.splitlines() == ["quiet", "formats", "the table"]
