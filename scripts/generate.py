"""Write what is made of Python: stubs and documents from the tables of names, the panel's types from its TypedDicts.

Also write what agents read, from the pages of the documentation.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from notebook_accel import accelerate_names, advice, exports  # noqa: E402
from notebook_accel.cli.launch.options import OPTIONS  # noqa: E402
from notebook_accel.config.keys import KEYS  # noqa: E402
from notebook_accel.config.settings import SETTINGS, Setting  # noqa: E402
from notebook_accel.events import Phase  # noqa: E402
from notebook_accel.launch.job.job_state import Status  # noqa: E402
from notebook_accel.train.options.enums import Choice  # noqa: E402

HEAD = "# Written by scripts/generate from notebook_accel/exports.py.\n"


PACKAGE = """from IPython.core.interactiveshell import InteractiveShell
__version__: str
def load_ipython_extension(shell: InteractiveShell) -> None: ...
def unload_ipython_extension(shell: InteractiveShell) -> None: ...
"""


def stub(modules: Mapping[str, str], submodules: Iterable[str], last: str) -> str:
    """Return the text of a stub, which has a line for each module that names are imported from."""
    names_by_module = defaultdict(list)
    for name, module in sorted(modules.items()):
        names_by_module[exports.path_of(module)].append(name)
    sources = {".": sorted({*submodules} - {*modules}), **dict(sorted(names_by_module.items()))}
    lines = [
        f"from {source} import {', '.join(f'{name} as {name}' for name in names)}\n"  # `as` exports it, too
        for source, names in sources.items()
        if names
    ]
    return HEAD + "".join(lines) + last


def stubs() -> dict[Path, str]:
    """Return the path and the text of each stub."""
    own = {"": exports.exported(), **exports.accelerate_modules()}
    others = exports.of_accelerate_by_module()
    modules = {module: {**own.get(module, {}), **others.get(module, {})} for module in (*own, *others)}
    submodules = defaultdict(list)
    for module in filter(None, [*modules]):
        while module:
            folder, _, name = module.rpartition(".")
            if name not in submodules[folder]:
                submodules[folder].append(name)
            modules.setdefault(module, {})
            module = folder
    found = {}
    for module, names in modules.items():
        path = ROOT.joinpath("notebook_accel", *module.split("."))
        path = path / "__init__.pyi" if module in submodules else path.with_suffix(".pyi")
        found[path] = stub(names, submodules.get(module, ()), "" if module else PACKAGE)
    return found


MODELS = {
    "notebook_accel/panel/panel_model.py": "extension/src/model.ts",
    "notebook_accel/jupyter/model.py": "extension/lab/src/model.ts",
}
"""By the file with TypedDicts, the file with the same as TypeScript."""
TYPES = {
    "str": "string",
    "int": "number",
    "float": "number",
    "bool": "boolean",
    "PhaseName": "Phase",
    "StatusName": "Status",
    "Any": "Json",
}
IMPORTED = {"Json": "extension/src/patch", "PanelUpdate": "extension/src/model"}
"""The types that are written elsewhere, by the file that has them."""


def model(path: str) -> str:
    """Return the TypeScript of a file with TypedDicts."""
    enums = {"PhaseName": ("PHASES", "Phase", Phase), "StatusName": ("STATUSES", "Status", Status)}
    body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    parts = [f"/**\n * Written by scripts/generate from {path}.\n */\n"]
    for statement, comment in _with_comments(body):
        match statement:
            case ast.AnnAssign(target=ast.Name(name)) if name in enums:
                constant, type_name, enum = enums[name]
                parts.append(
                    f"{_comment(comment)}export const {constant} = {_array([each.value for each in enum])} as const;\n"
                    f"export type {type_name} = (typeof {constant})[number];\n"
                )
            case ast.AnnAssign(target=ast.Name(name), value=ast.expr() as value):
                parts.append(f"{_comment(comment)}export type {name} = {_type(value)};\n")
            case ast.ClassDef(name=name, bases=[ast.Name(base)], keywords=options, body=[_, *fields]):
                head = name if base == "TypedDict" else f"{name} extends {base}"
                comment, lines = _comment(ast.get_docstring(statement)), _fields(fields, "?" if options else "")
                parts.append(f"{comment}export interface {head} {{\n{lines}}}\n")
    own = "".join(parts[1:])
    imports = [
        f'import type {{ {name} }} from "{_from(MODELS[path], file)}";\n'
        for name, file in IMPORTED.items()
        if re.search(rf"(: |, |extends ){name}\b", own) and f"export interface {name} " not in own
    ]
    return "\n".join([parts[0], *(["".join(imports)] if imports else []), *parts[1:]])


def _from(importer: str, file: str) -> str:
    path = os.path.relpath(file, Path(importer).parent)
    return path if path.startswith(".") else f"./{path}"


def _fields(body: list[ast.stmt], mark: str) -> str:
    lines = ""
    for statement, comment in _with_comments(body):
        if isinstance(statement, ast.AnnAssign):
            name = f"{ast.unparse(statement.target)}{mark}"
            lines += f"{_comment(comment, '  ')}  {name}: {_type(statement.annotation)};\n"
    return lines


def _type(annotation: ast.expr) -> str:
    """Return a Python annotation as TypeScript."""
    match annotation:
        case ast.Name(name):
            return TYPES.get(name, name)
        case ast.Subscript(ast.Name("list"), element):
            inner = _type(element)
            return f"({inner})[]" if " | " in inner else f"{inner}[]"
        case ast.BinOp(left, ast.BitOr(), right):
            return f"{_type(left)} | {_type(right)}"
        case ast.Constant(None):
            return "null"
        case ast.Subscript(ast.Name("tuple"), ast.Tuple(elements)):
            return f"[{', '.join(map(_type, elements))}]"
        case ast.Subscript(ast.Name("dict"), ast.Tuple([ast.Name("str"), element])):
            return f"Record<string, {_type(element)}>"
    raise ValueError(f"no TypeScript type is known for {ast.unparse(annotation)}")


def _array(values: list[str]) -> str:
    """Return an array on one line, or where that is too long on one a value, as the formatter has it."""
    line = ", ".join(f'"{value}"' for value in values)
    if len(line) <= 80:
        return f"[{line}]"
    return "[\n" + "".join(f'  "{value}",\n' for value in values) + "]"


def _with_comments(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, str | None]]:
    """Yield each statement with the string that follows it and documents it, if there is one."""
    for statement, after in zip_longest(body, body[1:]):
        match after:
            case ast.Expr(ast.Constant(str() as text)):
                yield statement, text
            case _:
                yield statement, None


def _comment(text: str | None, indent: str = "") -> str:
    return "" if text is None else f"{indent}/** {text} */\n"


RECORD = ROOT / "tests" / "train" / "parity" / "imports.txt"
Pairs = list[tuple[str, str]]
"""Modules of Accelerate, empty for the package itself, and names in them."""


def recorded_imports() -> dict[str, list[tuple[int, Pairs]]]:
    """Return by section, for each kind of file, the number of such files and what they import."""
    found: dict[str, list[tuple[int, Pairs]]] = {}
    for line in RECORD.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section = found.setdefault(line[1 : line.index("]")], [])
        elif line and not line.startswith("#"):
            count, _, text = line.strip().partition(" ")
            pairs: Pairs = []
            for part in text.replace("-", "").split(";"):
                module, _, names = part.strip().rpartition(":")
                pairs += [(module, name) for name in names.split()]
            section.append((int(count), pairs))
    return found


def outcome(module: str, name: str) -> str:
    """Return what an import of Accelerate's does here, by the tables.

    It works; the name is Accelerate's own, and so works if Accelerate is installed; it is refused when it is used, or
    when it is imported; or it is missing.
    """
    modules = exports.accelerate_modules()
    path = f"{module}.{name}".lstrip(".")
    known = {*modules[module], "__version__"} if module in modules else {*exports.exported(), "__version__"}
    if (module == "" or module in modules) and (name in known or path in modules):
        return "works"
    if path in accelerate_names.WITHOUT_OWN_NAMES:
        return "works"
    if name in exports.of_accelerate():
        return "accelerate"
    if advice.stand_in(name, module) is not None:
        return "use"
    return "refused" if advice.of_import(name, module) else "missing"


WORKS = ("works", "accelerate")
ANSWERED = (*WORKS, "use")


def share(section: list[tuple[int, Pairs]], outcomes: Iterable[str] = ("missing", "refused", *ANSWERED)) -> int:
    """Return the number of files whose imports all have one of these outcomes."""
    return sum(count for count, pairs in section if {outcome(*pair) for pair in pairs} <= {*outcomes})


def percent(part: int, whole: int) -> str:
    """Return a share, rounded down."""
    return f"{100 * part // whole}%"


WITH_GENERATED_PARTS = ("performance", "compatibility", "api/settings", "api/accelerate-names")


def documents() -> dict[Path, str]:
    """Return the path and the text of each document with generated parts."""
    record = recorded_imports()
    sample = record["sample"]
    parts = {
        "shares": "\n".join(
            [
                "| files | number | every name is available | every name is available, or answered when it is used |",
                "|---|---|---|---|",
                _shares("a sample of those that import `accelerate`", sample),
                _shares("files that import one of Accelerate's inner modules, a few of each", record["by module"]),
            ]
        ),
        "names": "\n".join(["| module | names |", "|---|---|", *_names_by_module()]),
        "accelerates": "\n".join(
            ["| module | names |", "|---|---|"]
            + [
                f"| `notebook_accel.{module}` | {_listed(names)} |"
                for module, names in exports.of_accelerate_by_module().items()
                if module not in ("", "utils")
            ]
        ),
        "used": "\n".join(["| belongs to | instead | names |", "|---|---|---|", *_refused("use")]),
        "refused": "\n".join(["| belongs to | instead | names |", "|---|---|---|", *_refused("import")]),
        "members": "\n".join(["| class | instead | members |", "|---|---|---|", *_refused_members()]),
        "interfaces": "\n".join(
            ["| call | `%accelerate` | `notebook-accel launch` | file | environment |", "|---|---|---|---|---|"]
            + [f"| {' | '.join(_names_of_setting(row))} |" for row in SETTINGS.values()]
        ),
        "versions": "\n".join(_passed_versions()),
        "missed": "\n".join(["| benchmark | figure | value | goal |", "|---|---|---|---|", *_missed_goals()]),
    }
    found = {}
    docs = (ROOT / "docs" / f"{name}.md" for name in WITH_GENERATED_PARTS)
    for path in docs:
        text = path.read_text(encoding="utf-8")
        for name, part in parts.items():
            begin, end = f"<!-- generated: {name} -->", "<!-- end of what is generated -->"
            pattern = f"{re.escape(begin)}.*?{re.escape(end)}"
            text = re.sub(pattern, lambda _: f"{begin}\n{part}\n{end}", text, flags=re.DOTALL)  # noqa: B023
        found[path] = text
    return found


def _shares(files: str, section: list[tuple[int, Pairs]]) -> str:
    total = share(section)
    parts = (percent(share(section, outcomes), total) for outcomes in (WORKS, ANSWERED))
    return f"| {files} | {total} | {' | '.join(parts)} |"


def _refused(where: str) -> Iterator[str]:
    for row in advice.TABLE:
        if row.where == where and row.names:
            yield f"| {row.subject} | {row.instead} | {', '.join(f'`{name}`' for name in row.names)} |"


def _names_by_module() -> Iterator[str]:
    also = exports.ALSO
    yield f"| `notebook_accel` | {_listed(exports.exported())} |"
    for module, modules in sorted(exports.accelerate_modules().items()):
        if module != "utils":  # all names of the modules in it
            yield f"| `notebook_accel.{module}` | {_listed({*modules} - {*also.get(module, '').split()})} |"


def _refused_members() -> Iterator[str]:
    kinds = {each.__name__ for each in Choice.__subclasses__()}
    for row in sorted(advice.TABLE):
        if row.where in kinds:
            yield f"| `{row.where}` | {row.instead} | {_listed(row.names)} |"


def _names_of_setting(row: Setting) -> Iterator[str]:
    """Yield the names of a setting in each interface, or a dash."""
    rows = [each for each in KEYS.values() if each.field == row.field]
    launch = {each.option or each.key for each in rows if each.launch}
    launch |= {option.name for option in OPTIONS if option.name == row.argument}
    launch |= {"use_fsdp"} if row.field == "strategy" else set()
    keys = [each.key for each in rows]
    yield f"`{row.argument}=`" if row.argument else "–"
    yield f"`{row.magic[-1]}`" if row.magic else "–"
    yield _listed(f"--{name}" for name in launch) or "–"
    yield ", ".join(f"`{key}`" for key in keys) or "–"
    yield f"`{row.variable}`" if row.variable else "–"


def _passed_versions() -> Iterator[str]:
    """Yield the table of the versions with which scripts/test-oldest and scripts/test-newest have passed."""
    record = json.loads((ROOT / "tests" / "passed_versions.json").read_text())
    suites = sorted(record, reverse=True)
    yield f"| | {' | '.join(f'`scripts/test-{suite}`' for suite in suites)} |"
    yield f"|---|{'---|' * len(suites)}"
    for name in dict.fromkeys(
        ["date", "Python", "torch", *sorted({name for each in record.values() for name in each})]
    ):
        yield f"| {name} | {' | '.join(record[suite].get(name, '–') for suite in suites)} |"


def _missed_goals() -> Iterator[str]:
    """Yield the rows of the benchmarks' results that say that a goal was missed, without saying so."""
    for row in (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8").splitlines():
        if row.startswith("|") and row.endswith(missed := " **missed** |"):
            yield re.sub(" +", " ", row.removesuffix(missed))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


SKILL = ROOT / "notebook_accel/.agents/skills/notebook-accel/SKILL.md"
"""Where agents look for what a package tells them: https://tiangolo.com/ideas/library-agent-skills."""
SKILL_SECTIONS = (
    "Start a training run",
    "In a shell",
    "When a job fails or stalls",
    "In Python",
    "With MCP, from Jupyter",
)
_ABOUT = (
    "Trains PyTorch models on several GPUs or processes from a notebook or a script, in jobs that outlive the call. "
    "Use it to start a training run, to wait for one, and to find out why one has failed, is stalled, or is slow."
)
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_LINK = re.compile(r"\[([^\]]*)\]\((?!https?:)[^)]*\)")


def for_agents() -> dict[Path, str]:
    """Return the path and the text of what agents read."""
    return {SKILL: _skill(), ROOT / "docs/llms.txt": _list_of_pages()}


def _skill() -> str:
    """Return those sections of the page on jobs that an agent needs to start a training run and to mend it."""
    page = (ROOT / "docs/jobs.md").read_text(encoding="utf-8")
    _, *parts = re.split(r"^##+ ", page, flags=re.MULTILINE)
    sections = {part.partition("\n")[0]: part for part in parts}
    texts = [_LINK.sub(r"\1", _COMMENT.sub("", f"## {sections[name]}")).strip() for name in SKILL_SECTIONS]
    about = "\n".join(textwrap.wrap(_ABOUT, 100, initial_indent="  ", subsequent_indent="  "))
    more = (
        "## More\n\nFor the arguments of a launch, run `help(notebook_accel.notebook_launcher)`; for the options of a "
        "command, `notebook-accel COMMAND --help`."
    )
    head = f"---\nname: notebook-accel\ndescription: >-\n{about}\n---\n\n# notebook-accel"
    return "\n\n".join([head, *texts, more]) + "\n"


def _list_of_pages() -> str:
    """Return the pages of the documentation, each with its first sentence: https://llmstxt.org."""
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    parts = [f"# {settings['site_name']}\n\n> {settings['site_description']}"]
    for group in settings["nav"]:
        [(name, pages)] = group.items()
        if isinstance(pages, list):
            parts.append("\n".join([f"## {name}\n", *map(_page, pages)]))
    return "\n\n".join(parts) + "\n"


def _page(path: str) -> str:
    text = _LINK.sub(r"\1", _COMMENT.sub("", (ROOT / "docs" / path).read_text(encoding="utf-8")))
    title, *rest = text.partition("\n## ")[0].removeprefix("# ").strip().split("\n\n")
    first = next((part for part in rest if re.match(r"[A-Z]|`\w", part)), "")
    sentence = re.split(r"(?<=[.:])\s", first)[0].rstrip(":")
    return f"- [{title}]({path})" + (f": {' '.join(sentence.split())}" if sentence else "")


def main() -> None:
    """Write all stubs, and remove those that nothing stands for any more."""
    written = stubs()
    for path in {*(ROOT / "notebook_accel").rglob("*.pyi")} - {*written}:
        path.unlink()
    for path, text in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for path, text in {**documents(), **for_agents()}.items():
        path.write_text(text, encoding="utf-8")
    for source, target in MODELS.items():
        (ROOT / target).write_text(model(source), encoding="utf-8")


if __name__ == "__main__":
    main()
