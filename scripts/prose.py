"""Check the prose of the documentation with proselint, and with the words in scripts/lib/words.yaml.

.venv/bin/python scripts/prose.py [FILE...]

Files are those that users read: pages, the text of the examples, and, for the words alone, the sources of the package.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml
from proselint import checks
from proselint.config import DEFAULT
from proselint.registry import CheckRegistry
from proselint.registry.checks import Check, CheckFlags, types
from proselint.registry.checks.engine import Fancy
from proselint.tools import LintFile, LintResult

ROOT = Path(__file__).parents[1]
WORDS = ROOT / "scripts" / "lib" / "words.yaml"
FILES = ("*.md", ":!benchmarks/RESULTS.md", "examples/*.ipynb", "notebook_accel/*.py")
"""As `git ls-files` reads them: a star also matches folders. The results are written by the benchmarks."""
OFF = {
    "typography.diacritical_marks": False,  # resumé
    "typography.symbols": False,  # quotes and dots of code
    "weasel_words.very": False,
}
OURS = "notebook_accel"
CODE = re.compile(r"^(?P<fence> *```+).*?^(?P=fence)$|<!--.*?-->|`[^`\n]*`|\]\([^)]*\)", re.MULTILINE | re.DOTALL)


def main() -> int:
    """Print what is found, and return the exit status."""
    registry = CheckRegistry()
    registry.register_many(checks.__register__)
    registry.register(table_of_words())
    given = [Path(name) for name in sys.argv[1:]]
    found = [line for path in given or listed() for line in findings(path)]
    print(*found, sep="\n", end="\n" if found else "")
    return int(bool(found))


def listed() -> list[Path]:
    """The files that are checked if none is named."""
    names = subprocess.run(["git", "ls-files", *FILES], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [Path(name) for name in names.splitlines()]


def table_of_words() -> Check:
    """The check of this project's own table."""
    words = {f"(?:{pattern})": advice for pattern, advice in yaml.safe_load(WORDS.read_text()).items()}
    flags = CheckFlags(allow_quotes=True)
    return Check(types.PreferredForms(words), Fancy(), OURS, "instead of {1!r}, write {0}", flags)


def findings(path: Path) -> Iterator[str]:
    """A line for each finding in a file."""
    enabled = {OURS: True} if path.suffix == ".py" else {**OFF, **DEFAULT["checks"], OURS: True}
    for place, text in texts(path):
        for found in LintFile(str(path), text).lint({"max_errors": 1000, "checks": enabled}) if text else ():
            if not spans_paragraphs(found, text):
                check = found.check_result
                yield f"{path}:{place(found.pos[0])}: {check.message} ({check.check_path})"


def spans_paragraphs(found: LintResult, text: str) -> bool:
    """Whether it begins in one paragraph and ends in the next, as a heading that the first sentence repeats."""
    begin, end = (position - 1 for position in found.check_result.span)  # proselint puts a line before the text
    return "\n\n" in text[begin:end]


def texts(path: Path) -> Iterator[tuple[Callable[[int], str], str]]:
    """The prose of a file, in parts, and for each the function that names the place of one of its lines."""
    text = (ROOT / path).read_text()
    if path.suffix == ".ipynb":
        for number, cell in enumerate(json.loads(text)["cells"]):
            if cell["cell_type"] == "markdown":
                yield (lambda line, number=number: f"cell {number}, line {line}"), without_code("".join(cell["source"]))
    else:
        yield str, without_code(text) if path.suffix == ".md" else text


def without_code(text: str) -> str:
    """The text without code, comments, and the targets of links; what is left keeps its place."""
    return CODE.sub(lambda code: re.sub(r"[^\n`]", " " if "\n" in code[0] else "_", code[0]), text)


if __name__ == "__main__":
    sys.exit(main())
