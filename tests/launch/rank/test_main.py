"""What a server does once for all ranks, and each server that is forked from it does again."""

import subprocess
import sys

SCRIPT = """
import builtins, importlib, sys, types
from notebook_accel.launch.rank import main

for name in ("torch.nn.parallel", "torch.distributed.rendezvous", "rich.progress", "IPython.display", "pdb"):
    importlib.import_module(name)

def functions():
    found = {}
    for module in list(sys.modules.values()):
        for name, value in list(vars(module).items()):
            members = vars(value).items() if isinstance(value, type) else [("", value)]
            found |= {(module.__name__, name, member): each for member, each in members if callable(each)}
    return found

main.prepare()
before, finders = functions(), len(sys.meta_path)
main.prepare()
after = functions()
assert len(before) > 10_000, len(before)
print(*sorted({key[:2] for key in before | after if before.get(key) is not after.get(key)}))
print(len(sys.meta_path) - finders)
"""


def test_what_is_patched_is_not_patched_again() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True, timeout=100)
    # Neither calls what it replaces twice.
    assert done.stdout.splitlines() == ["('builtins', 'input') ('getpass', 'getpass')", "0"]
