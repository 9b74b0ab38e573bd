"""What torch's compiler does in a rank that compiles nothing."""

import subprocess
import sys

SCRIPT = """
import atexit, logging, sys
from notebook_accel.launch.rank.patches import dynamo

dynamo.install()
assert not {"torch", "torch._dynamo"} & set(sys.modules)
from torch._dynamo import trace_rules, utils
trace_rules.get_mod_inlinelist()
assert trace_rules.get_mod_inlinelist.cache_info().currsize
utils.compile_times = lambda **_: print("formats") or "the table"

dynamo.install()
assert not trace_rules.get_mod_inlinelist.cache_info().currsize
atexit._run_exitfuncs()
print("quiet")
utils.log.setLevel(logging.INFO)
utils.log.addHandler(logging.StreamHandler(sys.stdout))
dynamo.install()
dynamo.install()  # as in a server that has been forked from one
"""


def test_caches_are_emptied_and_compilations_summed_up_once_for_a_logger_that_takes_the_sum() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True, timeout=100)
    assert done.stdout.splitlines() == ["quiet", "formats", "the table"]
