"""Time `import notebook_accel`, beyond the start of Python; exit with 1 if it takes 0.1 s."""

import resource
import subprocess
import sys

GOAL = 0.1
ROUNDS = 10


def seconds(code: str) -> float:
    """Return the processor time of a new Python that runs some code: what else the machine does is not in it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Print the least time of several, for the package and for its launcher, and return the exit status."""
    empty = min(seconds("pass") for _ in range(ROUNDS))
    package = min(seconds("import notebook_accel") for _ in range(ROUNDS)) - empty
    launcher = min(seconds("from notebook_accel import notebook_launcher") for _ in range(ROUNDS)) - empty
    print(f"import notebook_accel: {package:.3f} s; with notebook_launcher: {launcher:.3f} s")
    if package >= GOAL:
        print(f"the package must be imported in less than {GOAL} s", file=sys.stderr)
    return package >= GOAL


if __name__ == "__main__":
    sys.exit(main())
