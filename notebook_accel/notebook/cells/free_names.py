"""Finds the names that a cell, or a function that it defines, reads without having bound them first."""

from __future__ import annotations

import ast
import dis
import re
import types
from collections.abc import Iterable, Sequence

from notebook_accel.launch.wire.pickling import codes

_EXPANDED = re.compile(r"\$(\w+)|\{([^{}]*)\}")
"""References to variables in a line of shell or of a magic."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def read_names(tree: ast.Module) -> dict[str, int]:
    """Returns the names, each with the first line that reads it.

    Statements are visited in the order in which they run. The body of a function is assumed to run at the end of the
    cell, and the body of a loop to run once; after a branch, only the names that every alternative binds are bound.
    """
    reader = _Reader()
    reader.follow(tree.body)
    for name, line in reader.later.items():
        if name not in reader.bound:
            reader.read.setdefault(name, line)
    return reader.read


def globals_of(code: types.CodeType) -> set[str]:
    """The names that a function and its inner functions read from the module."""
    return {
        instruction.argval
        for each in codes(code)
        for instruction in dis.get_instructions(each)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }


class _Reader(ast.NodeVisitor):
    def __init__(self) -> None:
        self.read: dict[str, int] = {}
        self.later: dict[str, int] = {}
        """Names that functions read when they are called."""
        self.bound: set[str] = set()

    def follow(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.bound.add(node.id)
            return
        if node.id not in self.bound:
            self.read.setdefault(node.id, node.lineno)
        if isinstance(node.ctx, ast.Del):
            self.bound.discard(node.id)

    # Visit the parts that read names before those that bind them.

    def visit_Assign(self, node: ast.Assign) -> None:
        self.follow([node.value, *node.targets])

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.follow([node.value, node.annotation])
        if node.value is not None or not isinstance(node.target, ast.Name):
            self.visit(node.target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.visit_Name(ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target))
        self.follow([node.value, node.target])

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.follow([node.value, node.target])

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.follow([node.iter, node.target, *node.body, *node.orelse])

    visit_AsyncFor = visit_For

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self._branch([node.body, node.orelse])

    def visit_Try(self, node: ast.Try) -> None:
        branches: list[Sequence[ast.AST]] = [[*node.body, *node.orelse], *([handler] for handler in node.handlers)]
        self._branch(branches)
        self.follow(node.finalbody)

    visit_TryStar = visit_Try

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self.follow([node.type])
        self.bound |= {node.name} if node.name else set()
        self.follow(node.body)

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        self._branch([*([case] for case in node.cases), []])

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        self.follow([node.pattern])
        self.bound |= {node.name} if node.name else set()

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        self.bound |= {node.name} if node.name else set()

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self.follow([*node.keys, *node.patterns])
        self.bound |= {node.rest} if node.rest else set()

    def _branch(self, branches: Sequence[Sequence[ast.AST]]) -> None:
        before, after = self.bound, []
        for branch in branches:
            self.bound = set(before)
            self.follow(branch)
            after.append(self.bound)
        self.bound = set.intersection(*after) if after else before

    # Statements and expressions that bind names

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        self.bound |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}

    visit_ImportFrom = visit_Import

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.follow(node.decorator_list)
        self._function(node)
        self.bound.add(node.name)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._function(node)

    def _function(self, node: _Function) -> None:
        given = node.args
        arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
        self.follow([*given.defaults, *given.kw_defaults])
        self.follow(argument.annotation for argument in arguments if argument is not None)
        if not isinstance(node, ast.Lambda):
            self.follow([node.returns])
        for name in _free(node):
            self.later.setdefault(name, _line(node, name))

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.follow([*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)])
        before = set(self.bound)
        self.follow(node.body)  # names bound in the body hide outer ones, but only within it
        self.bound = before | {node.name}

    def _comprehension(self, node: _Comprehension) -> None:
        before = set(self.bound)
        for generator in node.generators:
            self.follow([generator.iter, generator.target, *generator.ifs])
        self.follow([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])
        self.bound = before

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    # Calls that IPython's syntax was translated to

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "get_ipython()":
            named = node.func.attr.startswith("run_")  # the first argument is the name of the magic
            for argument in node.args[named:]:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    self._line_of_its_own(argument.value, node.lineno)

    def _line_of_its_own(self, text: str, line: int) -> None:
        """Reads the argument of a magic or a shell line as Python statements, and expands its `$name` and `{name}`."""
        expanded = [name or expression for name, expression in _EXPANDED.findall(text)]
        for source in (text, *expanded):
            try:
                tree = ast.parse(source)
            except (SyntaxError, ValueError):
                continue
            inner = _Reader()
            inner.bound = set(self.bound)
            inner.follow(tree.body)
            for name in (*inner.read, *inner.later):
                self.read.setdefault(name, line)
            self.bound |= inner.bound if source is text else set()


def _free(node: _Function) -> set[str]:
    body: ast.stmt = ast.Expr(node) if isinstance(node, ast.Lambda) else node
    if isinstance(body, (ast.FunctionDef, ast.AsyncFunctionDef)):
        body = ast.copy_location(type(body)(**{**dict(ast.iter_fields(body)), "decorator_list": []}), body)
    module = compile(ast.fix_missing_locations(ast.Module([body], [])), "<cell>", "exec")
    inner = [const for const in module.co_consts if isinstance(const, types.CodeType)]
    return set().union(*map(globals_of, inner)) if inner else set()


def _line(node: ast.AST, name: str) -> int:
    """The first line on which a function reads a name."""
    lines = [each.lineno for each in ast.walk(node) if isinstance(each, ast.Name) and each.id == name]
    return min(lines) if lines else getattr(node, "lineno", 1)
